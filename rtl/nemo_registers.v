// Control registers of a controller, 64 bits per cycle (NEMO, section 4): a command block of the
// telemetry device, at its addresses.
//
//   word 0 doorbell   word 1 answer   word 2 result   words 8..56 arguments   words 56..63 reply
//
// Words, commands and answers: crates/wire/src/device.rs. A control operation (command 12) has the
// controller, the pipeline and the words of crates/nemo/src/registers.rs as arguments; only the
// bits that the circuit holds are stored. An operation with a word that does not fit, or with more
// than a pipeline has, is answered with "bad argument" and changes nothing.

module nemo_registers #(
    parameter PIPELINES = 8,
    parameter CHANNELS = 2,
    parameter BASE_BITS = 16,
    parameter HASH = 1,
    parameter CHAIN = 1,
    parameter PIPELINE_BITS = 4,
    parameter COMMON_BITS = 422,
    parameter SIDE_BITS = 198
) (
    input wire clk,
    input wire reset,

    input wire write,
    input wire [8:0] write_at,
    input wire [63:0] value,
    input wire [8:0] read_at,
    output reg [63:0] out,

    // A control operation of a pipeline, until it is done.
    output reg begins,
    output reg [2:0] operation,
    output wire [PIPELINE_BITS-1:0] pipeline,
    output wire [12:0] key,
    output wire [31:0] first,
    output wire [31:0] count,
    output wire entry_valid,
    output wire [BASE_BITS-1:0] base,
    output wire program_valid,
    output wire [COMMON_BITS-1:0] common,
    output wire [SIDE_BITS-1:0] home,
    output wire [SIDE_BITS-1:0] away,
    input wire done,

    // Status of the chosen pipeline and channel: 7 words, the first lowest.
    output wire [2:0] channel,
    input wire [7*64-1:0] status,
    input wire [63:0] pending
);
    // The first word of a control operation: after controller and pipeline.
    localparam [8:0] OPERATION = 9'd10;

    // ---- Arguments, of which the first words mean different things in different operations.

    reg controller_fits;
    reg [31:0] pipeline_word;  // whole, so that a number too large is refused
    reg [2:0] code;
    reg [63:0] word_1, word_2, word_3;
    reg [2:0] status_channel;
    reg status_channel_fits;
    reg [42:1] misfits;  // words of a program that do not fit

    reg [47:0] key_mask, offset_mask, first_key;
    reg [5:0] key_shift, offset_shift;
    reg [2:0] operator, source;
    reg [63:0] constant;
    reg hashes;
    reg [63:0] multiplier;
    reg [4:0] hash_bits;
    reg [1:0] chain;
    reg [3:0] bytes;
    reg saturates;
    reg [15:0] states;
    reg [3:0] banks;
    reg [63:0] fresh_home, fresh_away;
    reg [2:0] effect_home, effect_away, compare_home, compare_away;
    reg [63:0] by_home, by_away, threshold_home, threshold_away;

    wire [8:0] index = write_at - OPERATION;
    wire in_operation = write_at >= OPERATION && write_at < 9'd53;

    always @(posedge clk) begin
        if (write) begin
            case (write_at)
                9'd8: controller_fits <= value == 64'd0;
                9'd9: pipeline_word <= value[63:32] == 32'd0 ? value[31:0] : 32'hffff_ffff;
                9'd10: begin
                    code <= value <= 64'd4 ? value[2:0] : 3'd7;
                    status_channel <= value[2:0];
                    status_channel_fits <= value[63:32] == 32'd0 && value[31:0] < CHANNELS;
                end
                default: ;
            endcase
            if (in_operation) begin
                case (index[5:0])
                    6'd1: word_1 <= value;
                    6'd2: word_2 <= value;
                    6'd3: word_3 <= value;
                    6'd4: key_mask <= value[47:0];
                    6'd5: key_shift <= value[5:0];
                    6'd6: offset_mask <= value[47:0];
                    6'd7: offset_shift <= value[5:0];
                    6'd8: operator <= value[2:0];
                    6'd9: source <= value[2:0];
                    6'd10: constant <= value;
                    6'd11: compare_home <= value[2:0];
                    6'd12: threshold_home <= value;
                    6'd13: effect_home <= value[2:0];
                    6'd14: by_home <= value;
                    6'd26: compare_away <= value[2:0];
                    6'd27: threshold_away <= value;
                    6'd28: effect_away <= value[2:0];
                    6'd29: by_away <= value;
                    6'd31: first_key <= value[47:0];
                    6'd32: hashes <= value[0];
                    6'd33: multiplier <= value;
                    6'd34: hash_bits <= value[4:0];
                    6'd35: chain <= value[1:0];
                    6'd36: bytes <= value[3:0];
                    6'd37: saturates <= value != 64'd0;
                    6'd38: states <= value[15:0];
                    6'd40: banks <= value[3:0];
                    6'd41: fresh_home <= value;
                    6'd42: fresh_away <= value;
                    default: ;
                endcase
                case (index[5:0])
                    6'd1: misfits[1] <= value > 64'd2;
                    6'd2: misfits[2] <= value[63:48] != 16'd0;
                    6'd5, 6'd7: misfits[index[5:0]] <= value > 64'd63;
                    6'd8: misfits[8] <= value > 64'd4;
                    6'd9: misfits[9] <= value > 64'd4;
                    6'd11, 6'd26: misfits[index[5:0]] <= value > 64'd5;
                    6'd13, 6'd28: misfits[index[5:0]] <= value > 64'd6;
                    6'd31: misfits[31] <= value[63:48] != 16'd0;
                    6'd32: misfits[32] <= value > (HASH != 0 ? 64'd1 : 64'd0);
                    6'd34: misfits[34] <= value > 64'd16;
                    6'd35: misfits[35] <= value > (CHAIN != 0 ? 64'd2 : 64'd0);
                    6'd36: misfits[36] <= value == 64'd0 || value > 64'd8;
                    6'd38: misfits[38] <= value[63:16] != 48'd0;
                    6'd40: misfits[40] <= value == 64'd0 || value > 64'd8;
                    default: ;
                endcase
            end
        end
        if (reset) misfits <= 0;
    end

    assign pipeline = pipeline_word[PIPELINE_BITS-1:0];
    assign channel = status_channel;
    assign key = word_1[12:0];
    assign first = word_1[31:0];
    assign count = word_2[31:0];
    assign entry_valid = word_2 != 64'd0;
    assign base = word_3[BASE_BITS-1:0];
    assign program_valid = code == 3'd1;
    // A filter without an end is stored as the end of the 48 address bits.
    wire [48:0] last = word_3[63:48] != 16'd0 ? {1'b1, 48'd0} : word_3[48:0];
    assign common = {word_1[1:0], word_2[47:0], last, key_mask, key_shift, first_key, offset_mask,
        offset_shift, hashes, multiplier, hash_bits, operator, source, constant, chain, bytes,
        saturates, states, banks};
    assign home = {fresh_home, effect_home, by_home, compare_home, threshold_home};
    assign away = {fresh_away, effect_away, by_away, compare_away, threshold_away};

    // ---- What a pipeline cannot hold.

    wire [63:0] max = 64'hffff_ffff_ffff_ffff >> (7'd64 - {bytes, 3'd0});
    wire [1:0] per = bytes == 4'd1 ? 2'd3 : bytes == 4'd2 ? 2'd2 : bytes <= 4'd4 ? 2'd1 : 2'd0;
    wire [16:0] room = {3'd0, banks, 10'd0} << per;
    // The bits of a hash mean nothing to a program with a table.
    wire [42:1] misfits_now = {misfits[42:35], misfits[34] && hashes, misfits[33:1]};
    wire program_fits = misfits_now == 0 && {1'b0, states} <= room && fresh_home <= max
        && fresh_away <= max;
    wire translation_fits = word_1[63:13] == 0 && (!entry_valid || word_3[63:BASE_BITS] == 0);
    wire capture_fits = word_1[63:32] == 0 && word_2 <= 64'd4096;
    wire operation_fits = code == 3'd0 || (code == 3'd1 && program_fits)
        || (code == 3'd2 && translation_fits) || (code == 3'd3 && capture_fits) || code == 3'd4;
    wire place_fits = controller_fits && pipeline_word < PIPELINES;

    // ---- Commands.

    localparam [63:0] CONTROL = 12, STATUS = 14, PENDING = 15;
    localparam [2:0] WAITING = 0, DONE = 1, UNKNOWN = 2, BAD_ARGUMENT = 3;

    reg [2:0] answer;
    reg [63:0] result;
    reg [7*64-1:0] reply;
    wire doorbell = write && write_at == 9'd0;

    always @(posedge clk) begin
        begins <= 1'b0;
        if (reset) begin
            answer <= WAITING;
            result <= 0;
        end else if (doorbell) begin
            case (value)
                CONTROL: begin
                    answer <= place_fits && operation_fits ? WAITING : BAD_ARGUMENT;
                    begins <= place_fits && operation_fits;
                    operation <= code == 3'd0 ? 3'd1 : code;
                end
                STATUS: begin
                    answer <= place_fits && status_channel_fits ? DONE : BAD_ARGUMENT;
                    reply <= status;
                end
                PENDING: begin
                    answer <= controller_fits ? DONE : BAD_ARGUMENT;
                    result <= pending;
                end
                default: answer <= UNKNOWN;
            endcase
        end else if (done) begin
            answer <= DONE;
        end
    end

    always @* begin
        case (read_at)
            9'd1: out = {61'd0, answer};
            9'd2: out = result;
            9'd56: out = reply[0*64 +: 64];
            9'd57: out = reply[1*64 +: 64];
            9'd58: out = reply[2*64 +: 64];
            9'd59: out = reply[3*64 +: 64];
            9'd60: out = reply[4*64 +: 64];
            9'd61: out = reply[5*64 +: 64];
            9'd62: out = reply[6*64 +: 64];
            default: out = 0;
        endcase
    end

    wire unused = &{1'b0, index[8:6]};
endmodule
