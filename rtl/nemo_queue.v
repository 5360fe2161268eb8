// Requests that wait while a control operation has the slot of a lane.
//
// The head is readable in the cycle in which it is taken. The lane never pushes into a full queue
// without taking from it in the same cycle.

module nemo_queue #(
    parameter WIDTH = 189,
    parameter ADDRESS_BITS = 3
) (
    input wire clk,
    input wire clear,
    input wire push,
    input wire [WIDTH-1:0] in,
    input wire pop,
    output wire [WIDTH-1:0] head,
    output wire empty,
    output wire full
);
    reg [WIDTH-1:0] cells [0:(1 << ADDRESS_BITS)-1];
    reg [ADDRESS_BITS-1:0] first;
    reg [ADDRESS_BITS:0] count;

    // A queue that is cleared takes a request in the same cycle.
    wire [ADDRESS_BITS-1:0] free = clear ? first : first + count[ADDRESS_BITS-1:0];
    wire [ADDRESS_BITS:0] one = 1;

    assign head = cells[first];
    assign empty = count == 0;
    assign full = count[ADDRESS_BITS];

    always @(posedge clk) begin
        if (push) cells[free] <= in;
        if (clear) begin
            first <= first;
            count <= push ? one : 0;
        end else begin
            if (pop) first <= first + one[ADDRESS_BITS-1:0];
            count <= count + (push ? one : 0) - (pop ? one : 0);
        end
    end
endmodule
