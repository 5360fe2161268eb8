// Update: the operand, a constant, a field of the request (NEMO, section 3.1 "Update stage"), or in
// a chain the state that the pipeline before has updated (section 6.3).

module nemo_operand (
    input wire [47:0] address,
    input wire write,
    input wire [11:0] requester,
    input wire [63:0] chained,

    input wire [2:0] source,  // 0 constant; the request's 1 address, 2 write, 3 length, 4 requester
    input wire [63:0] constant,
    input wire [1:0] chain,  // 0 none, 1 value, 2 square step: from (n - 1)^2 to n^2

    output reg [63:0] operand
);
    always @* begin
        case (chain)
            2'd1: operand = chained;
            2'd2: operand = {chained[62:0], 1'b0} - 64'd1;
            default:
            case (source)
                3'd1: operand = {16'd0, address};
                3'd2: operand = {63'd0, write};
                3'd3: operand = 64'd64;  // a cache line: controllers see no other length
                3'd4: operand = {52'd0, requester};
                default: operand = constant;
            endcase
        endcase
    end

    wire unused = chained[63];
endmodule
