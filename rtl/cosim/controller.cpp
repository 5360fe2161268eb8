// A controller of the circuit behind a C interface: two channels, two to eight pipelines.

#include <cstdint>
#include <cstring>

#include "Vnemo_controller.h"
#include "bits.h"

namespace {

const int CHANNELS = 2;
const int RECORD_BITS = 48 + 1 + 12 + 64;
const int NUMBER_BITS = 14;

struct Controller {
    Vnemo_controller top;
    uint64_t cycles = 0;

    void settle() {
        top.clk = 0;
        top.eval();
    }

    void edge() {
        top.clk = 1;
        top.eval();
        cycles++;
    }
};

Controller &of(void *controller) {
    return *static_cast<Controller *>(controller);
}

}  // namespace

extern "C" {

void *nemo_controller_new() {
    auto *controller = new Controller;
    controller->top.reset = 1;
    controller->settle();
    controller->edge();
    controller->top.reset = 0;
    controller->settle();
    return controller;
}

void nemo_controller_free(void *controller) {
    delete &of(controller);
}

uint64_t nemo_controller_cycles(void *controller) {
    return of(controller).cycles;
}

// Simulates a cycle with a request of each channel whose bit 49 is set: address, write in bit 48,
// requester from bit 52 on; time.
void nemo_controller_clock(void *controller, const uint64_t *requests) {
    Vnemo_controller &top = of(controller).top;
    top.request = 0;
    for (int channel = 0; channel < CHANNELS; channel++) {
        uint64_t packed = requests[2 * channel];
        uint32_t *record = top.record.data();
        int at = RECORD_BITS * channel;
        if (!(packed >> 49 & 1)) continue;
        top.request |= 1 << channel;
        put(record, at, 64, requests[2 * channel + 1]);
        put(record, at + 64, 12, packed >> 52);
        put(record, at + 76, 1, packed >> 48);
        put(record, at + 77, 48, packed);
    }
    of(controller).settle();
    of(controller).edge();
    top.request = 0;
}

void nemo_controller_write(void *controller, uint32_t at, uint64_t value) {
    Vnemo_controller &top = of(controller).top;
    top.write = 1;
    top.write_at = at;
    top.value = value;
    of(controller).settle();
    of(controller).edge();
    top.write = 0;
    of(controller).settle();
}

uint64_t nemo_controller_read(void *controller, uint32_t at) {
    of(controller).top.read_at = at;
    of(controller).settle();
    return of(controller).top.out;
}

// Loads `count` lines of a channel from `number` on, without a pause. Returns the cycles from the
// first load to the last line.
uint64_t nemo_controller_load(void *controller, uint32_t channel, uint32_t number, uint32_t count,
                              uint64_t *lines) {
    Vnemo_controller &top = of(controller).top;
    uint64_t before = of(controller).cycles;
    for (uint32_t sent = 0, got = 0; got < count;) {
        top.load = sent < count ? 1 << channel : 0;
        uint64_t both = uint64_t(number + sent) << NUMBER_BITS * channel;
        top.load_number = both;
        of(controller).settle();
        sent += top.load_ready >> channel & 1;
        if (top.line_valid >> channel & 1) {
            memcpy(lines + 8 * got++, top.line.data() + 16 * channel, 64);
        }
        of(controller).edge();
    }
    top.load = 0;
    of(controller).settle();
    return of(controller).cycles - before;
}

int nemo_controller_is_idle(void *controller) {
    of(controller).settle();
    return of(controller).top.is_idle;
}

int nemo_controller_interrupt(void *controller) {
    of(controller).settle();
    return of(controller).top.interrupt_line;
}

}  // extern "C"
