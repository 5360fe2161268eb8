// A lane of the circuit behind a C interface: port words as crates/nemo/src/cycle/ports.rs packs
// them, a clock at a time.

#include <cstdint>
#include <cstring>

#include "Vnemo_lane.h"
#include "bits.h"

namespace {

// Fields of the program register bus, from its highest bit (nemo_lane.v), and the word of each that
// the caller passes.
const int WIDTHS[] = {2, 48, 49, 48, 6, 48, 48, 6, 1, 64, 5, 3,
                      3, 64, 2, 4, 1, 16, 4, 64, 3, 64, 3, 64};
const int FIELDS = sizeof WIDTHS / sizeof *WIDTHS;

}  // namespace

extern "C" {

void *nemo_lane_new() {
    auto *top = new Vnemo_lane;
    top->clk = 0;
    top->reset = 1;
    top->eval();
    top->clk = 1;
    top->eval();
    top->reset = 0;
    return top;
}

void nemo_lane_free(void *lane) {
    delete static_cast<Vnemo_lane *>(lane);
}

// Sets the program registers that a control operation 1 takes over; null for none.
void nemo_lane_program(void *lane, const uint64_t *fields) {
    auto *top = static_cast<Vnemo_lane *>(lane);
    top->program_valid = fields != nullptr;
    int at = 0;
    for (int field = FIELDS - 1; fields && field >= 0; field--) {
        put(top->program_in.data(), at, WIDTHS[field], fields[field]);
        at += WIDTHS[field];
    }
}

// Simulates a cycle: 4 words in, 11 words out.
void nemo_lane_clock(void *lane, const uint64_t *in, uint64_t *out) {
    auto *top = static_cast<Vnemo_lane *>(lane);
    top->address = in[0] & ((1ull << 48) - 1);
    top->write = in[0] >> 48 & 1;
    top->request = in[0] >> 49 & 1;
    top->requester = in[0] >> 52;
    top->nanos = in[1];
    top->chained = in[2];
    top->control = in[3] & 7;
    top->at = in[3] >> 8 & 0xffff;
    top->chosen = in[3] >> 24 & 0xff;
    top->base = in[3] >> 32 & 0xffff;
    top->entry_valid = in[3] >> 63;
    top->clk = 0;
    top->eval();
    bool ended = top->ended;
    out[0] = uint64_t(top->control_granted) | uint64_t(top->request_granted) << 1
        | uint64_t(top->dropped) << 3 | uint64_t(top->taken_valid) << 4 | uint64_t(ended) << 5
        | uint64_t(top->triggered) << 6 | uint64_t(top->wrapped) << 7
        | uint64_t(top->line_valid) << 8 | (ended ? uint64_t(top->ended_state) << 16 : 0);
    out[1] = top->taken_valid ? top->taken : 0;
    out[2] = ended ? top->ended_value : 0;
    if (top->line_valid) memcpy(out + 3, top->line.data(), 64);
    else memset(out + 3, 0, 64);
    top->clk = 1;
    top->eval();
}

// Whether no operation is in flight.
int nemo_lane_is_idle(void *lane) {
    auto *top = static_cast<Vnemo_lane *>(lane);
    return top->is_idle;
}

// Status as crates/nemo/src/registers.rs encodes it: 7 words.
void nemo_lane_status(void *lane, uint64_t *out) {
    auto *top = static_cast<Vnemo_lane *>(lane);
    uint64_t hint[] = {top->hint_state, top->hint_value, top->hint_nanos, top->hint_more};
    out[0] = top->status_drops;
    out[1] = top->status_wrapped;
    out[2] = top->hint;
    for (int n = 0; n < 4; n++) out[3 + n] = top->hint ? hint[n] : 0;
}

}  // extern "C"
