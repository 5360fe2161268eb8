// Words of 64 bits that are read by line: the states of one channel of a pipeline, 8,192 words
// (NEMO, section 4), or a capture page.
//
// They are stored in columns: word n is row n / COLUMNS of column n % COLUMNS. A read returns a
// row, so that eight columns deliver a cache line of the telemetry region per cycle (section 4: 512
// bits per cycle and channel). A write changes one word.

module nemo_states #(
    parameter WORD_BITS = 13,
    parameter COLUMNS_BITS = 3
) (
    input wire clk,
    input wire [WORD_BITS-1-COLUMNS_BITS:0] read_row,
    output wire [(64 << COLUMNS_BITS)-1:0] row,
    input wire write,
    input wire [WORD_BITS-1:0] write_word,
    input wire [63:0] value
);
    localparam COLUMNS = 1 << COLUMNS_BITS;
    wire [WORD_BITS-1:0] column = write_word & (COLUMNS - 1);

    genvar n;
    generate
        for (n = 0; n < COLUMNS; n = n + 1) begin : by_column
            nemo_sram #(.WIDTH(64), .ADDRESS_BITS(WORD_BITS - COLUMNS_BITS)) words (
                .clk(clk),
                .read_at(read_row),
                .out(row[64*n +: 64]),
                .write(write && column == n),
                .write_at(write_word[WORD_BITS-1:COLUMNS_BITS]),
                .value(value)
            );
        end
    endgenerate
endmodule
