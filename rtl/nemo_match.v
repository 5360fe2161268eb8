// Match, first part: filter, key, table index, offset (NEMO, section 3.1 "Match stage", table 1).
//
//   key    = (address & key_mask) >> key_shift
//   index  = key - first_key, of the 8,192 entries of the table (section 4)
//   offset = (address & offset_mask) >> offset_shift
//
// With HASH, a program may select its state by multiply-shift hashing of the key instead (section
// 6.3).

module nemo_match #(
    parameter HASH = 1
) (
    input wire [47:0] address,
    input wire write,

    input wire [1:0] kind,  // 0 reads, 1 writes, 2 all
    input wire [47:0] start,
    input wire [48:0] last,  // one past the last byte
    input wire [47:0] key_mask,
    input wire [5:0] key_shift,
    input wire [47:0] first_key,
    input wire [47:0] offset_mask,
    input wire [5:0] offset_shift,
    input wire hashes,
    input wire [63:0] multiplier,
    input wire [4:0] hash_bits,

    output wire wanted,
    output wire [12:0] index,
    output wire [15:0] hash,
    output wire [15:0] offset
);
    wire kind_fits = kind[1] || kind[0] == write;
    wire in_range = start <= address && {1'b0, address} < last;

    wire [47:0] key = (address & key_mask) >> key_shift;
    wire [48:0] from_first = {1'b0, key} - {1'b0, first_key};
    wire has_entry = from_first[48:13] == 0;

    wire [47:0] distance = (address & offset_mask) >> offset_shift;
    wire offset_fits = distance[47:16] == 0;

    assign index = from_first[12:0];
    assign offset = distance[15:0];
    assign wanted = kind_fits && in_range && offset_fits && (hashes || has_entry);

    generate
        if (HASH != 0) begin : hashing
            wire [63:0] product = {16'd0, key} * multiplier;
            assign hash = product[63:48] >> (5'd16 - hash_bits);
            wire unused = &{1'b0, product[47:0]};
        end else begin : plain
            assign hash = 0;
            wire unused = &{1'b0, multiplier, hash_bits};
        end
    endgenerate
endmodule
