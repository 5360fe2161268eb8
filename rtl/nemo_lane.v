// A lane, that is one channel of a pipeline: match, update, notify (NEMO, sections 3.1 and 4).
//
// Equal to crates/nemo/src/cycle/lane.rs cycle by cycle. In each cycle one request or control
// operation enters stage 1, which reads the table; stage 2 adds the offset and reads the states;
// stage 3 updates; stage 4 writes back. The read of stage 2 is older than the writes of the two
// operations before: their results are forwarded, so that nothing stalls (section 4: an initiation
// interval of 1).

module nemo_lane #(
    parameter QUEUE_BITS = 3,
    parameter PATIENCE = 64,
    parameter COLUMNS_BITS = 3,
    parameter BASE_BITS = 16,
    parameter TIME_BITS = 64,
    parameter HASH = 1,
    parameter CHAIN = 1,
    parameter PROGRAM_BITS = 620
) (
    input wire clk,
    input wire reset,

    // A request of the channel; `chained` is the state of the pipeline before in a chain.
    input wire request,
    input wire [47:0] address,
    input wire write,
    input wire [11:0] requester,
    input wire [TIME_BITS-1:0] nanos,
    input wire [63:0] chained,

    // A control operation: 0 none, 1 program, 2 translate, 3 take, 4 acknowledge, 5 load.
    input wire [2:0] control,
    input wire [15:0] at,  // entry, word, or line of the region
    input wire [7:0] chosen,  // counters of the word to capture
    input wire entry_valid,
    input wire [BASE_BITS-1:0] base,
    input wire program_valid,  // a program, or none: idle
    input wire [PROGRAM_BITS-1:0] program_in,

    output wire control_granted,
    output wire request_granted,
    output wire dropped,

    // Stage 3: a word was taken, or a line loaded.
    output wire taken_valid,
    output wire [63:0] taken,
    output wire line_valid,
    output wire [(64 << COLUMNS_BITS)-1:0] line,

    // Stage 3: an update ends.
    output wire ended,
    output wire triggered,
    output wire wrapped,
    output wire [15:0] ended_state,
    output wire [63:0] ended_value,
    output wire [47:0] ended_address,
    output wire ended_write,
    output wire [11:0] ended_requester,
    output wire [TIME_BITS-1:0] ended_nanos,

    output wire is_idle,
    output wire is_clearing,
    output wire is_chained,
    output wire has_program,
    output wire [15:0] has_states,
    output wire [3:0] has_bytes,

    output wire [63:0] status_drops,
    output wire status_wrapped,
    output wire hint,
    output wire [15:0] hint_state,
    output wire [63:0] hint_value,
    output wire [TIME_BITS-1:0] hint_nanos,
    output wire [63:0] hint_more
);
    localparam COLUMNS = 1 << COLUMNS_BITS;
    localparam REQUEST_BITS = 48 + 1 + 12 + TIME_BITS + (CHAIN != 0 ? 64 : 0);
    localparam [6:0] LIMIT = PATIENCE;

    // ---- Program registers.

    reg programmed;
    reg [PROGRAM_BITS-1:0] registers;
    wire [1:0] kind;
    wire [47:0] start;
    wire [48:0] last;
    wire [47:0] key_mask;
    wire [5:0] key_shift;
    wire [47:0] first_key;
    wire [47:0] offset_mask;
    wire [5:0] offset_shift;
    wire hashes;
    wire [63:0] multiplier;
    wire [4:0] hash_bits;
    wire [2:0] operator;
    wire [2:0] source;
    wire [63:0] constant;
    wire [1:0] chain;
    wire [3:0] bytes;
    wire saturates;
    wire [15:0] states;
    wire [3:0] banks;
    wire [63:0] fresh;
    wire [2:0] effect;
    wire [63:0] by;
    wire [2:0] compare;
    wire [63:0] threshold;
    assign {kind, start, last, key_mask, key_shift, first_key, offset_mask, offset_shift, hashes,
        multiplier, hash_bits, operator, source, constant, chain, bytes, saturates, states, banks,
        fresh, effect, by, compare, threshold} = registers;

    wire [63:0] max = 64'hffff_ffff_ffff_ffff >> (7'd64 - {bytes, 3'd0});
    assign is_chained = CHAIN != 0 && programmed && chain != 2'd0;
    assign has_program = programmed;
    assign has_states = states;
    assign has_bytes = bytes;

    // ---- Stage 1: arbitration, queue, filter and key.

    wire is_program = control == 3'd1;
    wire is_translate = control == 3'd2;
    wire is_take = control == 3'd3;
    wire is_acknowledge = control == 3'd4;
    wire is_load = control == 3'd5;
    wire is_control = control != 3'd0;

    reg clearing;
    reg [12:0] clear_at;
    reg [6:0] waited;
    wire drained;
    wire queue_empty;
    wire queue_full;

    wire urgent = waited >= LIMIT;
    wire free = (queue_empty && !request) || urgent;
    wire goes = is_program ? drained && (free || !programmed) : is_control && free;
    assign control_granted = !clearing && goes;
    wire reprograms = control_granted && is_program;

    wire [6:0] waited_now = is_control && !urgent ? waited + 7'd1 : waited;
    // Programming waits until the stages have drained: no operation enters meanwhile.
    wire drains = is_program && waited_now >= LIMIT;

    wire enters = !clearing && !control_granted && !drains;
    wire pop = enters && !queue_empty;
    wire direct = enters && queue_empty && request && programmed;
    assign request_granted = pop || direct;

    wire programmed_now = reprograms ? program_valid : programmed;
    wire waits = !clearing && request && programmed_now && !direct;
    wire no_room = queue_full && !pop && !reprograms;
    assign dropped = waits && no_room;

    wire [REQUEST_BITS-1:0] arrived;
    wire [REQUEST_BITS-1:0] head;
    wire [REQUEST_BITS-1:0] entering = queue_empty ? arrived : head;
    nemo_queue #(.WIDTH(REQUEST_BITS), .ADDRESS_BITS(QUEUE_BITS)) queue (
        .clk(clk),
        .clear(reset || reprograms),
        .push(waits && !no_room),
        .in(arrived),
        .pop(pop),
        .head(head),
        .empty(queue_empty),
        .full(queue_full)
    );

    wire [47:0] address_1;
    wire write_1;
    wire [11:0] requester_1;
    wire [TIME_BITS-1:0] nanos_1;
    wire [63:0] chained_1;
    generate
        if (CHAIN != 0) begin : links
            assign arrived = {address, write, requester, nanos, chained};
            assign {address_1, write_1, requester_1, nanos_1, chained_1} = entering;
        end else begin : no_links
            assign arrived = {address, write, requester, nanos};
            assign {address_1, write_1, requester_1, nanos_1} = entering;
            assign chained_1 = 0;
            wire unused_chain = &{1'b0, chained};
        end
    endgenerate

    wire wanted_1;
    wire [12:0] index_1;
    wire [15:0] hash_1;
    wire [15:0] offset_1;
    nemo_match #(.HASH(HASH)) matching (
        .address(address_1),
        .write(write_1),
        .kind(kind),
        .start(start),
        .last(last),
        .key_mask(key_mask),
        .key_shift(key_shift),
        .first_key(first_key),
        .offset_mask(offset_mask),
        .offset_shift(offset_shift),
        .hashes(hashes),
        .multiplier(multiplier),
        .hash_bits(hash_bits),
        .wanted(wanted_1),
        .index(index_1),
        .hash(hash_1),
        .offset(offset_1)
    );

    wire [BASE_BITS:0] entry;
    wire translates = control_granted && is_translate;
    nemo_sram #(.WIDTH(BASE_BITS + 1), .ADDRESS_BITS(13)) table_of_bases (
        .clk(clk),
        .read_at(index_1),
        .out(entry),
        .write(clearing || translates),
        .write_at(clearing ? clear_at : at[12:0]),
        .value(clearing ? {(BASE_BITS + 1){1'b0}} : {entry_valid, base})
    );

    // ---- Stage 2: base plus offset, and the read of the states.

    reg request_2, take_2, load_2, acknowledge_2;
    reg wanted_2;
    reg [15:0] hash_2, offset_2;
    reg [15:0] at_2;
    reg [7:0] chosen_2;
    reg [47:0] address_2;
    reg write_2;
    reg [11:0] requester_2;
    reg [TIME_BITS-1:0] nanos_2;
    reg [63:0] chained_2;

    wire [15:0] base_2 = hashes ? hash_2 : {{(16 - BASE_BITS){1'b0}}, entry[BASE_BITS-1:0]};
    wire fits_2;
    wire [15:0] state_2;
    wire [12:0] word_of_state;
    wire [2:0] up_2;
    nemo_select selection (
        .base(base_2),
        .offset(offset_2),
        .states(states),
        .bytes(bytes),
        .fits(fits_2),
        .state(state_2),
        .word(word_of_state),
        .up(up_2)
    );
    wire hit_2 = request_2 && wanted_2 && (hashes || entry[BASE_BITS]) && fits_2;

    // A line of the region is COLUMNS words.
    wire [12:0] first_of_line = at_2[12:0] << COLUMNS_BITS;
    wire [12:0] word_2 = request_2 ? word_of_state : take_2 ? at_2[12:0] : first_of_line[12:0];
    wire owned_2 = load_2
        ? at_2[15:13-COLUMNS_BITS] == 0 && {1'b0, first_of_line[12:10]} < banks
        : at_2[15:13] == 0 && {1'b0, at_2[12:10]} < banks;

    // ---- Stage 3: forwarding, update, notify, read effect.

    reg update_3, take_3, load_3, acknowledge_3;
    reg owned_3;
    reg [12:0] word_3;
    reg [2:0] up_3;
    reg [15:0] state_3;
    reg [7:0] chosen_3;
    reg [47:0] address_3;
    reg write_3;
    reg [11:0] requester_3;
    reg [TIME_BITS-1:0] nanos_3;
    reg [63:0] chained_3;

    // Stage 4: what is written in this cycle, and what was written in the one before.
    reg back, earlier;
    reg [12:0] back_word, earlier_word;
    reg [63:0] back_value, earlier_value;

    wire [(64 << COLUMNS_BITS)-1:0] row;
    wire [(64 << COLUMNS_BITS)-1:0] fetched_row;
    wire [63:0] fetched_by_column [0:COLUMNS-1];
    wire same_row = back_word[12:COLUMNS_BITS] == word_3[12:COLUMNS_BITS];
    wire same_row_earlier = earlier_word[12:COLUMNS_BITS] == word_3[12:COLUMNS_BITS];
    wire [12:0] back_column = back_word & (COLUMNS - 1);
    wire [12:0] earlier_column = earlier_word & (COLUMNS - 1);
    wire [12:0] column_3 = word_3 & (COLUMNS - 1);
    genvar n;
    generate
        for (n = 0; n < COLUMNS; n = n + 1) begin : forwarding
            wire newest = back && same_row && back_column == n;
            wire newer = earlier && same_row_earlier && earlier_column == n;
            assign fetched_by_column[n] =
                newest ? back_value : newer ? earlier_value : row[64*n +: 64];
            assign fetched_row[64*n +: 64] = fetched_by_column[n];
        end
    endgenerate
    reg [63:0] fetched;
    integer column;
    always @* begin
        fetched = 0;
        for (column = 0; column < COLUMNS; column = column + 1)
            if (column_3 == column[12:0]) fetched = fetched | fetched_row[64*column +: 64];
    end

    wire [63:0] operand;
    nemo_operand operands (
        .address(address_3),
        .write(write_3),
        .requester(requester_3),
        .chained(chained_3),
        .source(source),
        .constant(constant),
        .chain(CHAIN != 0 ? chain : 2'd0),
        .operand(operand)
    );

    wire [63:0] updated_word;
    wire updated_wrapped;
    wire updated_triggered;
    nemo_update updating (
        .word(fetched),
        .up(up_3),
        .operand(operand),
        .max(max),
        .saturates(saturates),
        .operator(operator),
        .compare(compare),
        .threshold(threshold),
        .new_word(updated_word),
        .value(ended_value),
        .wrapped(updated_wrapped),
        .triggered(updated_triggered)
    );

    wire [63:0] captured_word;
    nemo_capture capturing (
        .word(fetched),
        .chosen(chosen_3),
        .bytes(bytes),
        .max(max),
        .saturates(saturates),
        .effect(effect),
        .by(by),
        .new_word(captured_word)
    );

    assign taken_valid = take_3;
    assign taken = owned_3 ? fetched : 64'd0;
    assign line_valid = load_3;
    assign line = owned_3 ? fetched_row : 0;
    assign ended = update_3;
    assign triggered = update_3 && updated_triggered;
    assign wrapped = update_3 && updated_wrapped;
    assign ended_state = state_3;
    assign ended_address = address_3;
    assign ended_write = write_3;
    assign ended_requester = requester_3;
    assign ended_nanos = nanos_3;

    // ---- Stage 4: write back; after programming, clearing of a word per cycle.

    wire takes_back = update_3 || (take_3 && owned_3);
    wire [63:0] fresh_word = bytes == 4'd1 ? {8{fresh[7:0]}} : bytes == 4'd2 ? {4{fresh[15:0]}}
        : bytes == 4'd3 ? {16'd0, {2{fresh[23:0]}}} : bytes == 4'd4 ? {2{fresh[31:0]}} : fresh;
    nemo_states #(.WORD_BITS(13), .COLUMNS_BITS(COLUMNS_BITS)) states_of_lane (
        .clk(clk),
        .read_row(word_2[12:COLUMNS_BITS]),
        .row(row),
        .write(clearing || back),
        .write_word(clearing ? clear_at : back_word),
        .value(clearing ? fresh_word : back_value)
    );

    nemo_hint #(.TIME_BITS(TIME_BITS)) status (
        .clk(clk),
        .clear(reset || reprograms),
        .dropped(dropped),
        .wrapped(wrapped),
        .triggered(triggered),
        .acknowledged(acknowledge_3),
        .state(state_3),
        .value(ended_value),
        .nanos(nanos_3),
        .drops(status_drops),
        .has_wrapped(status_wrapped),
        .there(hint),
        .hint_state(hint_state),
        .hint_value(hint_value),
        .hint_nanos(hint_nanos),
        .more(hint_more)
    );

    assign drained = !(hit_2 || take_2 || load_2 || acknowledge_2) && !takes_back;
    assign is_clearing = clearing;
    assign is_idle = !request_2 && !take_2 && !load_2 && !acknowledge_2 && !update_3 && !take_3
        && !load_3 && !acknowledge_3 && !back && queue_empty && !clearing;

    always @(posedge clk) begin
        if (reprograms) registers <= program_in;

        hash_2 <= hash_1;
        offset_2 <= offset_1;
        wanted_2 <= wanted_1;
        at_2 <= at;
        chosen_2 <= chosen;
        address_2 <= address_1;
        write_2 <= write_1;
        requester_2 <= requester_1;
        nanos_2 <= nanos_1;
        chained_2 <= chained_1;

        owned_3 <= owned_2;
        word_3 <= word_2;
        up_3 <= up_2;
        state_3 <= state_2;
        chosen_3 <= chosen_2;
        address_3 <= address_2;
        write_3 <= write_2;
        requester_3 <= requester_2;
        nanos_3 <= nanos_2;
        chained_3 <= chained_2;

        back_word <= word_3;
        back_value <= update_3 ? updated_word : captured_word;
        earlier_word <= back_word;
        earlier_value <= back_value;

        if (reset) begin
            programmed <= 1'b0;
            clearing <= 1'b0;
            clear_at <= 0;
            waited <= 0;
            {request_2, take_2, load_2, acknowledge_2} <= 0;
            {update_3, take_3, load_3, acknowledge_3} <= 0;
            {back, earlier} <= 0;
        end else begin
            if (reprograms) programmed <= program_valid;
            if (clearing) begin
                clearing <= clear_at != 13'h1fff;
                clear_at <= clear_at + 13'd1;
            end else if (reprograms) begin
                clearing <= program_valid;
                clear_at <= 0;
            end
            if (!clearing) waited <= control_granted ? 0 : waited_now;

            request_2 <= request_granted;
            take_2 <= control_granted && is_take && programmed;
            load_2 <= control_granted && is_load && programmed;
            acknowledge_2 <= control_granted && is_acknowledge && programmed;
            update_3 <= hit_2;
            take_3 <= take_2;
            load_3 <= load_2;
            acknowledge_3 <= acknowledge_2;
            back <= takes_back;
            earlier <= back;
        end
    end
endmodule
