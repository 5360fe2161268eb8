// Update: one of the operators of table 1 on a counter of at most WIDTH bits (NEMO, section 3.1).
//
// Counters wrap around, or saturate (section 6.1). `max` is the largest value, all ones.

module nemo_operator #(
    parameter WIDTH = 64
) (
    input wire [2:0] operator,  // 0 +, 1 -, 2 <<, 3 >>, 4 ^
    input wire saturates,
    input wire [WIDTH-1:0] max,
    input wire [WIDTH-1:0] state,
    input wire [63:0] operand,

    output reg [WIDTH-1:0] result,
    output wire wrapped
);
    localparam SHIFT_BITS = $clog2(WIDTH);

    wire [WIDTH-1:0] low = operand[WIDTH-1:0];
    wire high;
    generate
        if (WIDTH < 64) begin : narrow
            assign high = |operand[63:WIDTH];
        end else begin : wide
            assign high = 1'b0;
        end
    endgenerate

    wire [WIDTH:0] sum = {1'b0, state} + {1'b0, low};
    wire over = high || sum > {1'b0, max};
    wire [WIDTH:0] difference = {1'b0, state} - {1'b0, low};
    wire under = high || difference[WIDTH];
    wire shifts_out = |operand[63:SHIFT_BITS];
    wire [SHIFT_BITS-1:0] by = operand[SHIFT_BITS-1:0];

    assign wrapped = operator == 3'd0 && !saturates && over;

    always @* begin
        case (operator)
            3'd0: result = saturates && over ? max : sum[WIDTH-1:0] & max;
            3'd1: result = saturates && under ? 0 : difference[WIDTH-1:0] & max;
            3'd2: result = shifts_out ? 0 : (state << by) & max;
            3'd3: result = shifts_out ? 0 : state >> by;
            default: result = (state ^ low) & max;
        endcase
    end
endmodule
