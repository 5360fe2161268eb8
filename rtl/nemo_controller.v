// Telemetry of a memory controller: pipelines next to the data path, their control registers, and
// the telemetry region (NEMO, sections 3 and 4, figures 1 and 2).
//
// Every request of a channel goes to that channel's lane of all pipelines; nothing goes back to the
// data path. The interrupt is high while a hint is there; the driver finds the pipeline by command
// 15.

module nemo_controller #(
    parameter PIPELINES = 8,
    parameter CHANNELS = 2,
    parameter COLUMNS_BITS = 3,
    parameter BASE_BITS = 16,
    parameter TIME_BITS = 64,
    parameter HASH = 1,
    parameter CHAIN = 1,
    parameter PIPELINE_BITS = 4,
    parameter RECORD_BITS = 48 + 1 + 12 + TIME_BITS
) (
    input wire clk,
    input wire reset,

    // A request of each channel: address, write, requester, time.
    input wire [CHANNELS-1:0] request,
    input wire [CHANNELS*RECORD_BITS-1:0] record,

    // Loads of the telemetry region, by channel: a line of the channel each cycle.
    input wire [CHANNELS-1:0] load,
    input wire [CHANNELS*(PIPELINE_BITS+13-COLUMNS_BITS)-1:0] load_number,
    output wire [CHANNELS-1:0] load_ready,
    output wire [CHANNELS-1:0] line_valid,
    output wire [CHANNELS*(64 << COLUMNS_BITS)-1:0] line,

    // Control registers.
    input wire write,
    input wire [8:0] write_at,
    input wire [63:0] value,
    input wire [8:0] read_at,
    output wire [63:0] out,

    output wire interrupt_line,
    output wire is_idle
);
    localparam ROW_BITS = 13 - COLUMNS_BITS;
    localparam PAGE_ROW_BITS = 9 - COLUMNS_BITS;
    localparam LINE_BITS = 64 << COLUMNS_BITS;
    localparam NUMBER_BITS = PIPELINE_BITS + ROW_BITS;
    localparam COMMON_BITS = 422;
    localparam SIDE_BITS = 198;
    localparam STATUS_BITS = 64 + 1 + 1 + 16 + 64 + TIME_BITS + 64;

    // ---- Registers, and the operation that they begin.

    wire begins, done;
    wire [2:0] operation;
    wire [PIPELINE_BITS-1:0] pipeline_number;
    wire [12:0] key;
    wire [31:0] first, count;
    wire entry_valid, program_valid;
    wire [BASE_BITS-1:0] base;
    wire [COMMON_BITS-1:0] common;
    wire [SIDE_BITS-1:0] home, away;
    wire [2:0] status_channel;
    wire [63:0] pending;
    wire [7*64-1:0] status_words;

    nemo_registers #(
        .PIPELINES(PIPELINES),
        .CHANNELS(CHANNELS),
        .BASE_BITS(BASE_BITS),
        .HASH(HASH),
        .CHAIN(CHAIN),
        .PIPELINE_BITS(PIPELINE_BITS),
        .COMMON_BITS(COMMON_BITS),
        .SIDE_BITS(SIDE_BITS)
    ) registers (
        .clk(clk),
        .reset(reset),
        .write(write),
        .write_at(write_at),
        .value(value),
        .read_at(read_at),
        .out(out),
        .begins(begins),
        .operation(operation),
        .pipeline(pipeline_number),
        .key(key),
        .first(first),
        .count(count),
        .entry_valid(entry_valid),
        .base(base),
        .program_valid(program_valid),
        .common(common),
        .home(home),
        .away(away),
        .done(done),
        .channel(status_channel),
        .status(status_words),
        .pending(pending)
    );

    wire [PIPELINES-1:0] idle, clearing, programmed;
    wire [PIPELINES*16-1:0] states;
    wire [PIPELINES*4-1:0] bytes;
    wire [PIPELINES*CHANNELS-1:0] granted, hint, taken_valid;
    wire [PIPELINES*CHANNELS*64-1:0] taken;
    wire [PIPELINES*CHANNELS*STATUS_BITS-1:0] status;

    wire [CHANNELS*3-1:0] control;
    wire [CHANNELS*16-1:0] at;
    wire [CHANNELS*8-1:0] chosen;
    wire [CHANNELS*9-1:0] page_word;
    reg programmed_now, clearing_now;
    reg [15:0] states_now;
    reg [3:0] bytes_now;
    reg [CHANNELS-1:0] granted_now, taken_now;
    reg [CHANNELS*64-1:0] taken_word;

    nemo_sequencer #(.CHANNELS(CHANNELS)) sequencer (
        .clk(clk),
        .reset(reset),
        .begins(begins),
        .operation(operation),
        .key(key),
        .first(first),
        .count(count),
        .done(done),
        .programmed(programmed_now),
        .clearing(clearing_now),
        .states(states_now),
        .bytes(bytes_now),
        .control(control),
        .at(at),
        .chosen(chosen),
        .granted(granted_now),
        .taken_valid(taken_now),
        .page_word(page_word)
    );

    // What the chosen pipeline says.
    integer number;
    always @* begin
        programmed_now = 1'b0;
        clearing_now = 1'b0;
        states_now = 0;
        bytes_now = 0;
        granted_now = 0;
        taken_now = 0;
        taken_word = 0;
        for (number = 0; number < PIPELINES; number = number + 1) begin
            if (pipeline_number == number[PIPELINE_BITS-1:0]) begin
                programmed_now = programmed[number];
                clearing_now = clearing[number];
                states_now = states[16*number +: 16];
                bytes_now = bytes[4*number +: 4];
                granted_now = granted[CHANNELS*number +: CHANNELS];
                taken_now = taken_valid[CHANNELS*number +: CHANNELS];
                taken_word = taken[CHANNELS*64*number +: CHANNELS*64];
            end
        end
    end

    // ---- Pipelines, each chained to the one before by a register.

    wire [PIPELINES*CHANNELS-1:0] lane_load, load_granted, lane_line_valid;
    wire [CHANNELS*ROW_BITS-1:0] lane_row;
    wire [PIPELINES*CHANNELS*LINE_BITS-1:0] lane_line;
    wire [PIPELINES*CHANNELS-1:0] ended;
    wire [PIPELINES*CHANNELS*RECORD_BITS-1:0] ended_record;
    wire [PIPELINES*CHANNELS*64-1:0] ended_value;
    reg [PIPELINES*CHANNELS-1:0] link;
    reg [PIPELINES*CHANNELS*RECORD_BITS-1:0] link_record;
    reg [PIPELINES*CHANNELS*64-1:0] link_value;

    always @(posedge clk) begin
        // The first pipeline has none before it.
        link <= reset ? 0 : ended << CHANNELS;
        link_record <= ended_record << (CHANNELS * RECORD_BITS);
        link_value <= ended_value << (CHANNELS * 64);
    end

    genvar p, c;
    generate
        for (p = 0; p < PIPELINES; p = p + 1) begin : pipelines
            wire is_chosen = pipeline_number == p;
            nemo_pipeline #(
                .CHANNELS(CHANNELS),
                .COLUMNS_BITS(COLUMNS_BITS),
                .BASE_BITS(BASE_BITS),
                .TIME_BITS(TIME_BITS),
                .HASH(HASH),
                .CHAIN(CHAIN),
                .COMMON_BITS(COMMON_BITS),
                .SIDE_BITS(SIDE_BITS)
            ) pipeline (
                .clk(clk),
                .reset(reset),
                .request(request),
                .record(record),
                .link(link[CHANNELS*p +: CHANNELS]),
                .link_record(link_record[CHANNELS*RECORD_BITS*p +: CHANNELS*RECORD_BITS]),
                .link_value(link_value[CHANNELS*64*p +: CHANNELS*64]),
                .control(is_chosen ? control : {(CHANNELS * 3){1'b0}}),
                .at(at),
                .chosen(chosen),
                .entry_valid(entry_valid),
                .base(base),
                .program_valid(program_valid),
                .common(common),
                .home(home),
                .away(away),
                .granted(granted[CHANNELS*p +: CHANNELS]),
                .load(lane_load[CHANNELS*p +: CHANNELS]),
                .load_row(lane_row),
                .load_granted(load_granted[CHANNELS*p +: CHANNELS]),
                .taken_valid(taken_valid[CHANNELS*p +: CHANNELS]),
                .taken(taken[CHANNELS*64*p +: CHANNELS*64]),
                .line_valid(lane_line_valid[CHANNELS*p +: CHANNELS]),
                .line(lane_line[CHANNELS*LINE_BITS*p +: CHANNELS*LINE_BITS]),
                .ended(ended[CHANNELS*p +: CHANNELS]),
                .ended_record(ended_record[CHANNELS*RECORD_BITS*p +: CHANNELS*RECORD_BITS]),
                .ended_value(ended_value[CHANNELS*64*p +: CHANNELS*64]),
                .is_idle(idle[p]),
                .is_clearing(clearing[p]),
                .programmed(programmed[p]),
                .states(states[16*p +: 16]),
                .bytes(bytes[4*p +: 4]),
                .hint(hint[CHANNELS*p +: CHANNELS]),
                .status(status[CHANNELS*STATUS_BITS*p +: CHANNELS*STATUS_BITS])
            );
            assign pending[p] = |hint[CHANNELS*p +: CHANNELS];
        end
        if (PIPELINES < 64) begin : fewer
            assign pending[63:PIPELINES] = 0;
        end
    endgenerate

    assign interrupt_line = pending != 0;
    assign is_idle = &idle && link == 0;

    // ---- Region and capture page, by channel.

    generate
        for (c = 0; c < CHANNELS; c = c + 1) begin : channels
            wire [PIPELINES-1:0] of_load, of_granted, of_valid;
            wire [PIPELINES*LINE_BITS-1:0] of_line;
            wire [PAGE_ROW_BITS-1:0] page_row;
            wire [LINE_BITS-1:0] page_line;
            for (p = 0; p < PIPELINES; p = p + 1) begin : lanes
                assign lane_load[CHANNELS*p + c] = of_load[p];
                assign of_granted[p] = load_granted[CHANNELS*p + c];
                assign of_valid[p] = lane_line_valid[CHANNELS*p + c];
                assign of_line[LINE_BITS*p +: LINE_BITS] =
                    lane_line[LINE_BITS*(CHANNELS*p + c) +: LINE_BITS];
            end
            nemo_region #(
                .PIPELINES(PIPELINES),
                .COLUMNS_BITS(COLUMNS_BITS),
                .PIPELINE_BITS(PIPELINE_BITS)
            ) region (
                .clk(clk),
                .reset(reset),
                .load(load[c]),
                .number(load_number[NUMBER_BITS*c +: NUMBER_BITS]),
                .ready(load_ready[c]),
                .lane_load(of_load),
                .lane_row(lane_row[ROW_BITS*c +: ROW_BITS]),
                .lane_granted(of_granted),
                .lane_valid(of_valid),
                .lane_line(of_line),
                .page_row(page_row),
                .page_line(page_line),
                .valid(line_valid[c]),
                .line(line[LINE_BITS*c +: LINE_BITS])
            );
            nemo_states #(.WORD_BITS(9), .COLUMNS_BITS(COLUMNS_BITS)) page (
                .clk(clk),
                .read_row(page_row),
                .row(page_line),
                .write(taken_now[c]),
                .write_word(page_word[9*c +: 9]),
                .value(taken_word[64*c +: 64])
            );
        end
    endgenerate

    // ---- Status of the chosen lane.

    wire [31:0] lane_number =
        CHANNELS * {{(32 - PIPELINE_BITS){1'b0}}, pipeline_number} + {29'd0, status_channel};
    reg [STATUS_BITS-1:0] lane_status;
    integer lane;
    always @* begin
        lane_status = 0;
        for (lane = 0; lane < PIPELINES * CHANNELS; lane = lane + 1)
            if (lane_number == lane) lane_status = status[STATUS_BITS*lane +: STATUS_BITS];
    end
    wire there = lane_status[16 + 64 + TIME_BITS + 64];
    wire [63:0] drops = lane_status[STATUS_BITS-1 -: 64];
    wire has_wrapped = lane_status[16 + 64 + TIME_BITS + 64 + 1];
    wire [15:0] hint_state = lane_status[64 + TIME_BITS + 64 +: 16];
    wire [63:0] hint_value = lane_status[TIME_BITS + 64 +: 64];
    wire [TIME_BITS-1:0] hint_nanos = lane_status[64 +: TIME_BITS];
    wire [63:0] more = lane_status[63:0];
    wire [63:0] nanos_word;
    assign nanos_word[TIME_BITS-1:0] = hint_nanos;
    generate
        if (TIME_BITS < 64) begin : short_time
            assign nanos_word[63:TIME_BITS] = 0;
        end
    endgenerate
    assign status_words = {there ? {more, nanos_word, hint_value, 48'd0, hint_state} : 256'd0,
        63'd0, there, 63'd0, has_wrapped, drops};
endmodule
