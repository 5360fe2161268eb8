// Read with effect: applies the read effect to the chosen counters of a word (NEMO, section 3.1
// "Telemetry state access", table 1).
//
// A word holds up to eight counters, but only one of them can be wider than 32 bits, two wider than
// 16, and four wider than 8: the operators are no wider than that.

module nemo_capture (
    input wire [63:0] word,
    input wire [7:0] chosen,

    input wire [3:0] bytes,
    input wire [63:0] max,
    input wire saturates,
    input wire [2:0] effect,  // 0 none, 1 reset, 2.. an operator
    input wire [63:0] by,

    output wire [63:0] new_word
);
    wire [2:0] operator = effect - 3'd2;
    wire [63:0] part [0:7];

    genvar n;
    generate
        for (n = 0; n < 8; n = n + 1) begin : counters
            localparam WIDTH = n == 0 ? 64 : n == 1 ? 32 : n < 4 ? 16 : 8;
            // The counter is there if the word has room for it.
            wire there = n == 0 || n * bytes + bytes <= 8;
            wire [5:0] up = n * bytes * 8;
            wire [63:0] shifted = word >> up;
            wire [WIDTH-1:0] old = shifted[WIDTH-1:0] & max[WIDTH-1:0];
            wire [WIDTH-1:0] result;
            wire wrapped;
            reg [WIDTH-1:0] after;

            nemo_operator #(.WIDTH(WIDTH)) operation (
                .operator(operator),
                .saturates(saturates),
                .max(max[WIDTH-1:0]),
                .state(old),
                .operand(by),
                .result(result),
                .wrapped(wrapped)
            );

            always @* begin
                if (!chosen[n] || effect == 3'd0) after = old;
                else if (effect == 3'd1) after = by[WIDTH-1:0] & max[WIDTH-1:0];
                else after = result;
            end

            wire [63:0] placed = {{(64 - WIDTH){1'b0}}, after} << up;
            assign part[n] = there ? placed : 64'd0;
            wire unused = &{1'b0, wrapped, shifted};
        end
    endgenerate

    // Counters of 3, 5, 6 and 7 bytes leave bytes of the word unused; they stay as they are.
    reg [63:0] unused_bytes;
    always @* begin
        case (bytes)
            4'd3: unused_bytes = {16'hffff, 48'd0};
            4'd5: unused_bytes = {24'hff_ffff, 40'd0};
            4'd6: unused_bytes = {16'hffff, 48'd0};
            4'd7: unused_bytes = {8'hff, 56'd0};
            default: unused_bytes = 0;
        endcase
    end

    assign new_word = (word & unused_bytes) | part[0] | part[1] | part[2] | part[3] | part[4]
        | part[5] | part[6] | part[7];
endmodule
