// A pipeline: a lane for each memory channel, all with the same program (NEMO, section 3.1, figure
// 2).
//
// Each lane has a table and states of its own (section 4). Channel 0 has the home bank, whose
// initial value, effect and trigger may differ from those of the other channels. A chained pipeline
// gets the updates of the one before instead of the requests of the bus (section 6.3).

module nemo_pipeline #(
    parameter CHANNELS = 2,
    parameter COLUMNS_BITS = 3,
    parameter BASE_BITS = 16,
    parameter TIME_BITS = 64,
    parameter HASH = 1,
    parameter CHAIN = 1,
    parameter COMMON_BITS = 422,
    parameter SIDE_BITS = 198,
    parameter RECORD_BITS = 48 + 1 + 12 + TIME_BITS,
    parameter STATUS_BITS = 64 + 1 + 1 + 16 + 64 + TIME_BITS + 64
) (
    input wire clk,
    input wire reset,

    // Requests of the bus, and updates of the pipeline before, by channel.
    input wire [CHANNELS-1:0] request,
    input wire [CHANNELS*RECORD_BITS-1:0] record,
    input wire [CHANNELS-1:0] link,
    input wire [CHANNELS*RECORD_BITS-1:0] link_record,
    input wire [CHANNELS*64-1:0] link_value,

    // Control operations of the registers, by channel, and loads of the region.
    input wire [CHANNELS*3-1:0] control,
    input wire [CHANNELS*16-1:0] at,
    input wire [CHANNELS*8-1:0] chosen,
    input wire entry_valid,
    input wire [BASE_BITS-1:0] base,
    input wire program_valid,
    input wire [COMMON_BITS-1:0] common,
    input wire [SIDE_BITS-1:0] home,
    input wire [SIDE_BITS-1:0] away,
    output wire [CHANNELS-1:0] granted,

    input wire [CHANNELS-1:0] load,
    input wire [CHANNELS*(13-COLUMNS_BITS)-1:0] load_row,
    output wire [CHANNELS-1:0] load_granted,

    output wire [CHANNELS-1:0] taken_valid,
    output wire [CHANNELS*64-1:0] taken,
    output wire [CHANNELS-1:0] line_valid,
    output wire [CHANNELS*(64 << COLUMNS_BITS)-1:0] line,

    output wire [CHANNELS-1:0] ended,
    output wire [CHANNELS*RECORD_BITS-1:0] ended_record,
    output wire [CHANNELS*64-1:0] ended_value,

    output wire is_idle,
    output wire is_clearing,
    output wire programmed,
    output wire [15:0] states,
    output wire [3:0] bytes,
    output wire [CHANNELS-1:0] hint,
    output wire [CHANNELS*STATUS_BITS-1:0] status
);
    localparam ROW_BITS = 13 - COLUMNS_BITS;
    localparam LINE_BITS = 64 << COLUMNS_BITS;

    wire [CHANNELS-1:0] idle;
    wire [CHANNELS-1:0] clearing;
    wire [CHANNELS-1:0] has_program;
    wire [CHANNELS*16-1:0] states_of;
    wire [CHANNELS*4-1:0] bytes_of;
    assign is_idle = &idle;
    assign is_clearing = |clearing;
    assign programmed = has_program[0];
    assign states = states_of[15:0];
    assign bytes = bytes_of[3:0];

    genvar c;
    generate
        for (c = 0; c < CHANNELS; c = c + 1) begin : channels
            // Loads and control operations take turns if both are there.
            reg after_load;
            wire register_op = control[3*c +: 3] != 3'd0;
            wire loads = load[c] && !(register_op && after_load);
            wire lane_granted;
            wire lane_chained;
            assign granted[c] = lane_granted && !loads;
            assign load_granted[c] = lane_granted && loads;
            always @(posedge clk) begin
                if (reset) after_load <= 1'b0;
                else if (lane_granted) after_load <= loads;
            end

            wire [RECORD_BITS-1:0] own = lane_chained
                ? link_record[RECORD_BITS*c +: RECORD_BITS] : record[RECORD_BITS*c +: RECORD_BITS];
            wire [SIDE_BITS-1:0] side;
            if (c == 0) begin : home_side
                assign side = home;
            end else begin : away_side
                assign side = away;
            end
            wire [15:0] row_to_load = {{(16 - ROW_BITS){1'b0}}, load_row[ROW_BITS*c +: ROW_BITS]};

            wire [63:0] drops;
            wire has_wrapped;
            wire [15:0] hint_state;
            wire [63:0] hint_value;
            wire [TIME_BITS-1:0] hint_nanos;
            wire [63:0] more;
            assign status[STATUS_BITS*c +: STATUS_BITS] =
                {drops, has_wrapped, hint[c], hint_state, hint_value, hint_nanos, more};

            wire request_granted, dropped, triggered, wrapped;
            wire [15:0] ended_state;
            wire unused = &{1'b0, request_granted, dropped, triggered, wrapped, ended_state};

            nemo_lane #(
                .COLUMNS_BITS(COLUMNS_BITS),
                .BASE_BITS(BASE_BITS),
                .TIME_BITS(TIME_BITS),
                .HASH(HASH),
                .CHAIN(CHAIN),
                .PROGRAM_BITS(COMMON_BITS + SIDE_BITS)
            ) lane (
                .clk(clk),
                .reset(reset),
                .request(lane_chained ? link[c] : request[c]),
                .address(own[RECORD_BITS-1 -: 48]),
                .write(own[TIME_BITS+12]),
                .requester(own[TIME_BITS +: 12]),
                .nanos(own[TIME_BITS-1:0]),
                .chained(link_value[64*c +: 64]),
                .control(loads ? 3'd5 : control[3*c +: 3]),
                .at(loads ? row_to_load : at[16*c +: 16]),
                .chosen(chosen[8*c +: 8]),
                .entry_valid(entry_valid),
                .base(base),
                .program_valid(program_valid),
                .program_in({common, side}),
                .control_granted(lane_granted),
                .request_granted(request_granted),
                .dropped(dropped),
                .taken_valid(taken_valid[c]),
                .taken(taken[64*c +: 64]),
                .line_valid(line_valid[c]),
                .line(line[LINE_BITS*c +: LINE_BITS]),
                .ended(ended[c]),
                .triggered(triggered),
                .wrapped(wrapped),
                .ended_state(ended_state),
                .ended_value(ended_value[64*c +: 64]),
                .ended_address(ended_record[RECORD_BITS*c+TIME_BITS+13 +: 48]),
                .ended_write(ended_record[RECORD_BITS*c+TIME_BITS+12]),
                .ended_requester(ended_record[RECORD_BITS*c+TIME_BITS +: 12]),
                .ended_nanos(ended_record[RECORD_BITS*c +: TIME_BITS]),
                .is_idle(idle[c]),
                .is_clearing(clearing[c]),
                .is_chained(lane_chained),
                .has_program(has_program[c]),
                .has_states(states_of[16*c +: 16]),
                .has_bytes(bytes_of[4*c +: 4]),
                .status_drops(drops),
                .status_wrapped(has_wrapped),
                .hint(hint[c]),
                .hint_state(hint_state),
                .hint_value(hint_value),
                .hint_nanos(hint_nanos),
                .hint_more(more)
            );
        end
    endgenerate

    // The program is the same in all channels, also while only some have taken it over.
    wire unused_others = &{1'b0, has_program, states_of, bytes_of, away};
endmodule
