// The telemetry region of one channel: loads of states and captured words, a line per cycle (NEMO,
// sections 3.1 "Telemetry state access" and 4; order of the lines: crates/nemo/src/region.rs).
//
// A load comes over the channel like a request and goes through the stages of its lane like one, so
// that it finds the result of every update before. It has no effect. Of each channel's lines,
// pipelines come first, then the capture page; beyond are zeros.

module nemo_region #(
    parameter PIPELINES = 8,
    parameter COLUMNS_BITS = 3,
    parameter PIPELINE_BITS = 4
) (
    input wire clk,
    input wire reset,

    input wire load,
    input wire [PIPELINE_BITS+12-COLUMNS_BITS:0] number,
    output wire ready,

    output wire [PIPELINES-1:0] lane_load,
    output wire [12-COLUMNS_BITS:0] lane_row,
    input wire [PIPELINES-1:0] lane_granted,
    input wire [PIPELINES-1:0] lane_valid,
    input wire [PIPELINES*(64 << COLUMNS_BITS)-1:0] lane_line,

    output wire [8-COLUMNS_BITS:0] page_row,
    input wire [(64 << COLUMNS_BITS)-1:0] page_line,

    output wire valid,
    output reg [(64 << COLUMNS_BITS)-1:0] line
);
    localparam ROW_BITS = 13 - COLUMNS_BITS;
    localparam PAGE_ROW_BITS = 9 - COLUMNS_BITS;
    localparam LINE_BITS = 64 << COLUMNS_BITS;

    wire [PIPELINE_BITS-1:0] pipeline = number[ROW_BITS +: PIPELINE_BITS];
    wire in_page = {{(32 - PIPELINE_BITS){1'b0}}, pipeline} == PIPELINES
        && number[ROW_BITS-1:PAGE_ROW_BITS] == 0;
    assign lane_row = number[ROW_BITS-1:0];
    assign ready = load && (lane_load == 0 || |lane_granted);

    genvar n;
    generate
        for (n = 0; n < PIPELINES; n = n + 1) begin : select
            assign lane_load[n] = load && pipeline == n;
        end
    endgenerate

    // Where the line of each of the two stages comes from.
    reg there_2, there_3, of_page_2, of_page_3;
    reg [PAGE_ROW_BITS-1:0] page_row_2;
    assign page_row = page_row_2;
    assign valid = there_3;

    integer from;
    always @* begin
        line = of_page_3 ? page_line : 0;
        for (from = 0; from < PIPELINES; from = from + 1)
            line = line | (lane_valid[from] ? lane_line[LINE_BITS*from +: LINE_BITS] : 0);
    end

    always @(posedge clk) begin
        there_2 <= !reset && ready;
        there_3 <= !reset && there_2;
        of_page_2 <= ready && in_page;
        of_page_3 <= of_page_2;
        page_row_2 <= number[PAGE_ROW_BITS-1:0];
    end
endmodule
