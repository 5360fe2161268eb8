// Match, second part: base index plus offset, and the place of that state (NEMO, section 3.1).
//
// States narrower than a word share one: 8, 4, 2 or 1 in a word for counters of 1, 2, 3 to 4, or 5
// to 8 bytes (section 6.1).

module nemo_select (
    input wire [15:0] base,
    input wire [15:0] offset,
    input wire [15:0] states,
    input wire [3:0] bytes,

    output wire fits,
    output wire [15:0] state,
    output reg [12:0] word,
    output reg [2:0] up  // bytes from the word's lowest byte to the counter
);
    wire [16:0] sum = {1'b0, base} + {1'b0, offset};
    assign fits = sum < {1'b0, states};
    assign state = sum[15:0];

    always @* begin
        case (bytes)
            4'd1: begin
                word = state[15:3];
                up = state[2:0];
            end
            4'd2: begin
                word = state[14:2];
                up = {state[1:0], 1'b0};
            end
            4'd3: begin
                word = state[13:1];
                up = state[0] ? 3'd3 : 3'd0;
            end
            4'd4: begin
                word = state[13:1];
                up = {state[0], 2'b00};
            end
            default: begin
                word = state[12:0];
                up = 0;
            end
        endcase
    end
endmodule
