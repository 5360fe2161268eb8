// Carries out a control operation in all channels of a pipeline, each at its own pace (NEMO,
// sections 3.1 "Telemetry state access" and 4).
//
// A capture is a take for each word of the chosen states, at most a page of 512 words; what they
// return goes to the capture page. `done` is given when no effect is outstanding.

module nemo_sequencer #(
    parameter CHANNELS = 2
) (
    input wire clk,
    input wire reset,

    input wire begins,
    input wire [2:0] operation,  // 1 program, 2 translate, 3 capture, 4 acknowledge
    input wire [12:0] key,
    input wire [31:0] first,  // of a capture: its first state, and their number
    input wire [31:0] count,
    output wire done,

    // The chosen pipeline.
    input wire programmed,
    input wire clearing,
    input wire [15:0] states,
    input wire [3:0] bytes,
    output wire [CHANNELS*3-1:0] control,
    output wire [CHANNELS*16-1:0] at,
    output wire [CHANNELS*8-1:0] chosen,
    input wire [CHANNELS-1:0] granted,
    input wire [CHANNELS-1:0] taken_valid,

    output wire [CHANNELS*9-1:0] page_word
);
    // After the last grant an operation needs two cycles for its effect.
    localparam [2:0] SETTLES = 3'd4;

    reg active;
    reg [2:0] settling;
    wire capture = operation == 3'd3;

    // States that share a word, as a power of two.
    wire [1:0] per = bytes == 4'd1 ? 2'd3 : bytes == 4'd2 ? 2'd2 : bytes <= 4'd4 ? 2'd1 : 2'd0;
    wire [32:0] asked_end = {1'b0, first} + {1'b0, count};
    wire [16:0] last = asked_end > {17'd0, states} ? {1'b0, states} : asked_end[16:0];
    wire some = programmed && first < {15'd0, last};
    wire [15:0] first_word = first[15:0] >> per;
    wire [16:0] end_word = (last + (17'd1 << per) - 17'd1) >> per;
    wire [16:0] all_words = end_word - {1'b0, first_word};
    wire [9:0] words = !some ? 10'd0 : all_words > 17'd512 ? 10'd512 : all_words[9:0];

    wire [CHANNELS-1:0] ended;
    assign done = active && &ended && settling == SETTLES && !clearing;

    genvar c, n;
    generate
        for (c = 0; c < CHANNELS; c = c + 1) begin : channels
            reg waiting;
            reg [9:0] issued;
            reg [9:0] received;
            wire takes = active && capture && issued != words;
            wire [15:0] word = first_word + {6'd0, issued};
            wire [18:0] first_of_word = {3'd0, word} << per;

            assign control[3*c +: 3] = takes || (active && !capture && waiting) ? operation : 3'd0;
            assign at[16*c +: 16] = capture ? word : {3'd0, key};
            assign ended[c] = capture ? received == words : !waiting;
            assign page_word[9*c +: 9] = received[8:0];
            for (n = 0; n < 8; n = n + 1) begin : counters
                wire [18:0] state = first_of_word + n;
                assign chosen[8*c + n] = n < (1 << per) && {13'd0, state} >= first
                    && state < {2'd0, last};
            end

            always @(posedge clk) begin
                if (begins) begin
                    waiting <= 1'b1;
                    issued <= 0;
                    received <= 0;
                end else if (active) begin
                    if (granted[c]) begin
                        waiting <= 1'b0;
                        issued <= issued + 10'd1;
                    end
                    if (taken_valid[c]) received <= received + 10'd1;
                end
            end
        end
    endgenerate

    always @(posedge clk) begin
        if (reset) active <= 1'b0;
        else if (begins) active <= 1'b1;
        else if (done) active <= 1'b0;
        settling <= !active || !(&ended) ? 3'd0 : settling != SETTLES ? settling + 3'd1 : settling;
    end
endmodule
