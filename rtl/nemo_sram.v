// SRAM with one read port and one write port (NEMO, section 4: reads and writes of one cycle).
//
// The result of a read is available in the next cycle. A read and a write of one cell in the same
// cycle return the old content, as M20K blocks do with one clock. The same as
// crates/nemo/src/cycle/sram.rs.

module nemo_sram #(
    parameter WIDTH = 64,
    parameter ADDRESS_BITS = 13
) (
    input wire clk,
    input wire [ADDRESS_BITS-1:0] read_at,
    output reg [WIDTH-1:0] out,
    input wire write,
    input wire [ADDRESS_BITS-1:0] write_at,
    input wire [WIDTH-1:0] value
);
    reg [WIDTH-1:0] cells [0:(1 << ADDRESS_BITS)-1];

    always @(posedge clk) begin
        if (write) cells[write_at] <= value;
        out <= cells[read_at];
    end
endmodule
