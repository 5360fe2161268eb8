// Update: changes one counter of a word (NEMO, section 3.1 "Update stage"), and notify: compares
// its new value (section 3.1 "Notify stage").

module nemo_update (
    input wire [63:0] word,
    input wire [2:0] up,
    input wire [63:0] operand,

    input wire [63:0] max,
    input wire saturates,
    input wire [2:0] operator,
    input wire [2:0] compare,  // 0 never, 1 ==, 2 >=, 3 >, 4 <, 5 <=
    input wire [63:0] threshold,

    output wire [63:0] new_word,
    output wire [63:0] value,
    output wire wrapped,
    output reg triggered
);
    wire [5:0] bits_up = {up, 3'd0};
    wire [63:0] mask = max << bits_up;

    nemo_operator #(.WIDTH(64)) operation (
        .operator(operator),
        .saturates(saturates),
        .max(max),
        .state((word >> bits_up) & max),
        .operand(operand),
        .result(value),
        .wrapped(wrapped)
    );

    assign new_word = (word & ~mask) | (value << bits_up);

    wire equal = value == threshold;
    wire below = value < threshold;

    always @* begin
        case (compare)
            3'd1: triggered = equal;
            3'd2: triggered = !below;
            3'd3: triggered = !below && !equal;
            3'd4: triggered = below;
            3'd5: triggered = below || equal;
            default: triggered = 1'b0;
        endcase
    end
endmodule
