//! Seeded defects of the circuit: each replaces a text of a source before it is built. A
//! co-simulation that does not find one of them proves nothing.

/// A text to replace.
#[derive(Clone, Copy, Debug)]
pub struct Defect {
    /// Name of the defect, and of its library.
    pub name: &'static str,
    /// Source file in `rtl`.
    pub file: &'static str,
    /// Text that the file has once.
    pub from: &'static str,
    /// What replaces it.
    pub to: &'static str,
}

/// The defects, one or more in each stage of a lane.
pub const DEFECTS: [Defect; 8] = [
    Defect {
        name: "forwarding-of-the-newest-only",
        file: "nemo_lane.v",
        from: "newer ? earlier_value : ",
        to: "",
    },
    Defect {
        name: "filter-takes-one-byte-more",
        file: "nemo_match.v",
        from: "{1'b0, address} < last",
        to: "{1'b0, address} <= last",
    },
    Defect {
        name: "base-without-carry",
        file: "nemo_select.v",
        from: "assign fits = sum < {1'b0, states};",
        to: "assign fits = sum[15:0] < states;",
    },
    Defect {
        name: "saturation-ignores-the-carry",
        file: "nemo_operator.v",
        from: "sum > {1'b0, max}",
        to: "sum[WIDTH-1:0] > max",
    },
    Defect {
        name: "hint-is-overwritten",
        file: "nemo_hint.v",
        from: "if (triggered && !there) begin",
        to: "if (triggered) begin",
    },
    Defect {
        name: "request-lost-at-a-full-queue",
        file: "nemo_lane.v",
        from: "queue_full && !pop && !reprograms",
        to: "queue_full && !reprograms",
    },
    Defect {
        name: "last-word-is-not-cleared",
        file: "nemo_lane.v",
        from: "clear_at != 13'h1fff",
        to: "clear_at != 13'h1ffe",
    },
    Defect {
        name: "effect-on-all-counters-of-a-word",
        file: "nemo_capture.v",
        from: "!chosen[n] || effect",
        to: "chosen == 0 || effect",
    },
];
