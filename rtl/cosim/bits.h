// Fields of wide ports.

#pragma once

#include <cstdint>

// Sets bits `at`.. of a port of 32-bit words.
inline void put(uint32_t *port, int at, int width, uint64_t value) {
    for (int bit = 0; bit < width; bit++) {
        uint32_t mask = 1u << ((at + bit) & 31);
        if (value >> bit & 1) port[(at + bit) >> 5] |= mask;
        else port[(at + bit) >> 5] &= ~mask;
    }
}
