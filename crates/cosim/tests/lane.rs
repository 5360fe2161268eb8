//! A lane of the circuit equals the cycle model in every cycle; `make bench-rtl` compares them over
//! more requests.

use tierscope_core::{Compare, Operand};
use tierscope_cosim::compare::{Mutation, Run, run};

const RUN: Run<'_> =
    Run { seed: 1, channel: 0, requests: 400_000, cycles: 6000, defect: None, mutation: None };

#[test]
fn the_circuit_equals_the_model_cycle_by_cycle() {
    for channel in 0..2 {
        let outcome = run(&Run { seed: 1 + channel as u64, channel, ..RUN }).unwrap();
        assert!(outcome.difference.is_none(), "{:?}", outcome.difference);
        println!("{} programs, {:?}", outcome.programs, outcome.events);
        assert_eq!(outcome.coverage.missing(), [] as [&str; 0], "options that no program had");
    }
}

// The model gets another program than the circuit, by one bit of one register.
#[test]
fn a_difference_in_a_register_is_found() {
    let defects: [(&str, Mutation); 6] = [
        ("first key", |program| program.first_key += 1),
        ("key shift", |program| program.key.shift += 1),
        ("states", |program| program.states -= 1),
        ("operand", |program| {
            if let Operand::Constant(value) = &mut program.operand {
                *value ^= 1;
            }
        }),
        ("predicate", |program| {
            if let Some(trigger) = &mut program.home.trigger
                && trigger.compare == Compare::AtLeast
            {
                trigger.compare = Compare::Above;
            }
        }),
        ("initial value", |program| program.home.start ^= 1),
    ];
    for (name, mutation) in defects {
        let outcome = run(&Run { mutation: Some(mutation), ..RUN }).unwrap();
        let found = outcome.difference.unwrap_or_else(|| panic!("{name} is not found"));
        println!("{name}: at request {}, cycle {}", found.request, found.cycle);
    }
}
