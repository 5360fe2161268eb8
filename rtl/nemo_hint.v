// Status of a lane: requests dropped, whether a counter wrapped around, and the first update since
// the last acknowledgement for which the trigger held, with the number of later ones (NEMO, section
// 3.1 "Notify stage"). A hint that is there is the lane's interrupt.

module nemo_hint #(
    parameter TIME_BITS = 64
) (
    input wire clk,
    input wire clear,
    input wire dropped,
    input wire wrapped,
    input wire triggered,
    input wire acknowledged,
    input wire [15:0] state,
    input wire [63:0] value,
    input wire [TIME_BITS-1:0] nanos,

    output reg [63:0] drops,
    output reg has_wrapped,
    output reg there,
    output reg [15:0] hint_state,
    output reg [63:0] hint_value,
    output reg [TIME_BITS-1:0] hint_nanos,
    output reg [63:0] more
);
    always @(posedge clk) begin
        if (clear) begin
            drops <= 0;
            has_wrapped <= 1'b0;
            there <= 1'b0;
        end else begin
            if (dropped) drops <= drops + 64'd1;
            if (wrapped) has_wrapped <= 1'b1;
            if (acknowledged) there <= 1'b0;
            else if (triggered) there <= 1'b1;
            if (triggered && there) more <= more + 64'd1;
            if (triggered && !there) begin
                hint_state <= state;
                hint_value <= value;
                hint_nanos <= nanos;
                more <= 0;
            end
        end
    end
endmodule
