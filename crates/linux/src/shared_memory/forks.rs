//! Anonymous memory that processes inherited by fork.
//!
//! After a fork, parent and child have the same pages at the same addresses, until one of them
//! writes to a page and gets a copy (copy on write). The memory stays listed in the space of the
//! process that was watched first, so that a fork changes no address; what the others inherited are
//! views of it. A survey of page maps finds out which blocks a process has copied: these become
//! mappings of its own, and stay that, as do mappings that the process made since. What both
//! processes mapped at one address since the fork, before they were watched, is a view until the
//! survey.
//!
//! Processes are taken for relatives if `[vdso]` and the end of `[stack]` have the same addresses:
//! an exec draws them at random. Without that randomization (`setarch -R`), all processes of one
//! program are relatives, which share nothing by the first survey.

use std::collections::BTreeMap;

use tierscope_core::{Addr, Backing, Mapping, Mappings, Range, RangeSet, SharedView, SpaceId};

use crate::proc::ProcessMaps;

/// What a process keeps from one exec to the next, and forked processes have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Program {
    vdso: u64,
    stack_end: u64,
    /// Device and inode of the first file that is mapped.
    file: Option<(u64, u64)>,
}

impl Program {
    /// The process's program; `None` if it has no `[vdso]` or no stack.
    fn of(maps: &ProcessMaps) -> Option<(SpaceId, Self)> {
        let named = |name: &str| maps.mappings.iter().find(|mapping| &*mapping.name == name);
        let file = maps.mappings.iter().find_map(|mapping| mapping.object);
        let (vdso, stack) = (named("[vdso]")?.range, named("[stack]")?.range);
        let file = file.map(|object| (object.device, object.inode));
        Some((vdso.space, Self { vdso: vdso.start, stack_end: stack.end, file }))
    }
}

/// Processes that were forked from one another, by program, in the order of their spaces.
#[derive(Debug)]
pub(super) struct Relatives(Vec<Vec<SpaceId>>);

impl Relatives {
    pub(super) fn of(processes: &[ProcessMaps]) -> Self {
        let mut by_program: BTreeMap<Program, Vec<SpaceId>> = BTreeMap::new();
        for (space, program) in processes.iter().filter_map(Program::of) {
            by_program.entry(program).or_default().push(space);
        }
        Self(by_program.into_values().filter(|spaces| spaces.len() > 1).collect())
    }
}

/// What each process inherited and has not copied, by its own addresses.
#[derive(Debug, Default)]
pub(super) struct Forks(BTreeMap<SpaceId, RangeSet>);

impl Forks {
    /// The processes that inherited memory, now or before.
    pub(super) fn heirs(&self) -> impl Iterator<Item = SpaceId> {
        self.0.keys().copied()
    }

    /// Makes views of the mappings of inherited memory; `copied` are blocks of the processes that
    /// they have copied.
    pub(super) fn list(&mut self, relatives: &Relatives, copied: &RangeSet, out: &mut Mappings) {
        let before = std::mem::take(&mut self.0);
        for spaces in &relatives.0 {
            let Some((first, heirs)) = spaces.split_first() else { continue };
            let theirs = anonymous(out, *first);
            for heir in heirs {
                let moved = theirs.as_slice().iter().map(|range| Range { space: *heir, ..*range });
                let common = anonymous(out, *heir).intersect(&moved.collect());
                let inherited = match before.get(heir) {
                    Some(known) => common.intersect(known).minus(copied),
                    None => common,
                };
                self.0.insert(*heir, inherited);
            }
        }
        if !self.0.is_empty() {
            self.cut(relatives, out);
        }
    }

    /// Takes what processes inherited out of their mappings, and makes views of it.
    fn cut(&self, relatives: &Relatives, out: &mut Mappings) {
        let firsts = relatives.0.iter().flat_map(|spaces| {
            let first = spaces[0];
            spaces[1..].iter().map(move |heir| (*heir, first))
        });
        let firsts: BTreeMap<SpaceId, SpaceId> = firsts.collect();
        let mut own = Vec::with_capacity(out.mappings.len());
        for mapping in std::mem::take(&mut out.mappings) {
            let space = mapping.range.space;
            match (firsts.get(&space), self.0.get(&space)) {
                (Some(first), Some(inherited)) if is_anonymous(&mapping) => {
                    cut_mapping(&mapping, *first, inherited, &mut own, &mut out.views);
                }
                _ => own.push(mapping),
            }
        }
        out.mappings = own;
        out.views.sort_by_key(|view| view.range);
    }
}

/// The anonymous memory of a space.
fn anonymous(mappings: &Mappings, space: SpaceId) -> RangeSet {
    let own = in_space(mappings, space).iter().filter(|mapping| is_anonymous(mapping));
    own.map(|mapping| mapping.range).collect()
}

fn in_space(mappings: &Mappings, space: SpaceId) -> &[Mapping] {
    let all = &mappings.mappings;
    let begin = all.partition_point(|mapping| mapping.range.space < space);
    let end = all.partition_point(|mapping| mapping.range.space <= space);
    &all[begin..end]
}

fn is_anonymous(mapping: &Mapping) -> bool {
    mapping.object.is_none() && mapping.backing != Backing::Kernel
}

/// Cuts a mapping into what the process inherited from `first`, and the rest.
fn cut_mapping(
    mapping: &Mapping,
    first: SpaceId,
    inherited: &RangeSet,
    own: &mut Vec<Mapping>,
    views: &mut Vec<SharedView>,
) {
    let all = inherited.as_slice();
    let all = &all[all.partition_point(|range| range.end <= mapping.range.start)..];
    let common: RangeSet = all.iter().map_while(|range| range.intersect(&mapping.range)).collect();
    let rest = RangeSet::from_iter([mapping.range]).minus(&common);
    own.extend(rest.as_slice().iter().map(|range| Mapping { range: *range, ..mapping.clone() }));
    views.extend(common.as_slice().iter().map(|range| SharedView {
        range: *range,
        memory: Addr { space: first, at: range.start },
        name: mapping.name.clone(),
    }));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use tierscope_core::Object;

    use super::*;

    const PAGE: u64 = 4096;

    fn range(space: u32, pages: (u64, u64)) -> Range {
        Range::new(SpaceId(space), pages.0 * PAGE, pages.1 * PAGE)
    }

    fn mapping(space: u32, pages: (u64, u64)) -> Mapping {
        Mapping {
            range: range(space, pages),
            backing: Backing::Anonymous,
            name: "".into(),
            writable: true,
            object: None,
        }
    }

    /// A process of program `program` with anonymous memory at these pages.
    fn process(space: u32, program: u64, pages: &[(u64, u64)]) -> ProcessMaps {
        let own = pages.iter().map(|pages| mapping(space, *pages));
        let (stack, vdso) = (2000 + 10 * program, 3000 + 10 * program);
        let stack = Mapping {
            backing: Backing::Stack,
            name: "[stack]".into(),
            ..mapping(space, (stack, stack + 1))
        };
        let vdso = Mapping {
            backing: Backing::Kernel,
            name: "[vdso]".into(),
            ..mapping(space, (vdso, vdso + 1))
        };
        ProcessMaps { mappings: own.chain([stack, vdso]).collect(), shareable: Vec::new() }
    }

    /// What is listed of processes, after what each of `forks` did.
    fn listed(forks: &mut Forks, processes: &[ProcessMaps], copied: &[Range]) -> Mappings {
        let all = processes.iter().flat_map(|maps| maps.mappings.clone()).collect();
        let mut out = Mappings { mappings: all, ..Mappings::default() };
        let copied = copied.iter().copied().collect();
        forks.list(&Relatives::of(processes), &copied, &mut out);
        out
    }

    /// First page and end of the views and of the anonymous mappings of a space, stacks apart.
    fn of(out: &Mappings, space: u32) -> [Vec<(u64, u64)>; 2] {
        let pages = |range: &Range| (range.start / PAGE, range.end / PAGE);
        let views = out.views.iter().map(|view| view.range);
        let own = in_space(out, SpaceId(space)).iter().filter(|own| own.name.is_empty());
        let views = views.filter(|range| range.space.0 == space && range.start < 2000 * PAGE);
        [views.map(|range| pages(&range)).collect(), own.map(|own| pages(&own.range)).collect()]
    }

    // The child has the parent's pages 10 to 20, and pages 30 to 34 that the parent maps from 32
    // on. It copies pages 12 to 14, and maps pages 20 to 23 at once with the parent.
    #[test]
    fn a_child_has_views_until_it_copies() {
        let mut forks = Forks::default();
        let processes =
            [process(0, 1, &[(10, 20), (32, 40)]), process(1, 1, &[(10, 20), (30, 34)])];
        let out = listed(&mut forks, &processes, &[]);
        assert_eq!(of(&out, 0), [vec![], vec![(10, 20), (32, 40)]]);
        assert_eq!(of(&out, 1), [vec![(10, 20), (32, 34)], vec![(30, 32)]]);
        assert_eq!(out.views[0].memory, range(0, (10, 20)).at(0));
        let processes = [process(0, 1, &[(10, 23)]), process(1, 1, &[(10, 23)])];
        let out = listed(&mut forks, &processes, &[range(1, (12, 14))]);
        let expected = [vec![(10, 12), (14, 20)], vec![(12, 14), (20, 23)]];
        assert_eq!(of(&out, 1), expected);
        let out = listed(&mut forks, &processes, &[]);
        assert_eq!(of(&out, 1), expected, "what was copied stays the child's");
        assert_eq!(forks.heirs().collect::<Vec<_>>(), [SpaceId(1)]);
    }

    #[test]
    fn a_program_that_was_executed_inherits_nothing() {
        let processes = [process(0, 1, &[(10, 20)]), process(1, 2, &[(10, 20)])];
        let out = listed(&mut Forks::default(), &processes, &[]);
        assert_eq!((out.views.len(), of(&out, 1)), (0, [vec![], vec![(10, 20)]]));
        let object = Some(Object { device: 1, inode: 7, offset: 0 });
        let mut other = process(1, 1, &[(10, 20)]);
        other.mappings[0].object = object;
        let out = listed(&mut Forks::default(), &[process(0, 1, &[(10, 20)]), other], &[]);
        assert_eq!(of(&out, 1), [vec![], vec![(10, 20)]], "a file is no anonymous memory");
    }

    // The parent ends: its first child has the memory from then on, but what the second child had
    // copied stays its own.
    #[test]
    fn the_next_process_has_the_memory_when_the_first_one_ends() {
        let mut forks = Forks::default();
        let processes = [0, 1, 2].map(|space| process(space, 1, &[(10, 20)]));
        listed(&mut forks, &processes, &[]);
        listed(&mut forks, &processes, &[range(2, (10, 12))]);
        let out = listed(&mut forks, &processes[1..], &[]);
        assert_eq!(of(&out, 1), [vec![], vec![(10, 20)]]);
        assert_eq!(of(&out, 2), [vec![(12, 20)], vec![(10, 12)]]);
        assert!(out.views.iter().all(|view| view.memory.space == SpaceId(1)));
        let out = listed(&mut forks, &processes[2..], &[]);
        assert_eq!((of(&out, 2), forks.heirs().count()), ([vec![], vec![(10, 20)]], 0));
    }

    /// Pages of anonymous memory of a process.
    fn pages(maps: &ProcessMaps) -> BTreeSet<u64> {
        let own = maps.mappings.iter().filter(|mapping| mapping.backing != Backing::Kernel);
        own.flat_map(|own| own.range.start / PAGE..own.range.end / PAGE).collect()
    }

    proptest! {
        // Three processes of one or two programs, each with up to four mappings, change three times
        // and copy pages. Page by page: it is a view if the first process of the program has it,
        // and if it was one whenever the process was looked at, and was not copied since.
        #[test]
        fn pages_agree_with_a_naive_observer(
            programs in prop::collection::vec(0u64..2, 3),
            times in prop::collection::vec(
                (
                    prop::collection::vec(prop::collection::vec((0u64..4, 1u64..9), 0..4), 3),
                    prop::collection::vec((0u32..3, 0u64..30, 1u64..9), 0..3),
                ),
                1..4,
            ),
        ) {
            let mut forks = Forks::default();
            let mut views: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
            for (rows, copied) in times {
                let processes: Vec<ProcessMaps> = (0..).zip(&rows).map(|(space, row)| {
                    let mut at = 0;
                    let pages: Vec<_> = row.iter().map(|(gap, pages)| {
                        let start = at + gap;
                        at = start + pages;
                        (start, at)
                    }).collect();
                    process(space, programs[space as usize], &pages)
                }).collect();
                let copied: Vec<Range> = copied.iter()
                    .map(|(space, start, pages)| range(*space, (*start, start + pages))).collect();
                let out = listed(&mut forks, &processes, &copied);
                for space in 0..3u32 {
                    let maps = &processes[space as usize];
                    let first = programs.iter().position(|of| *of == programs[space as usize]);
                    let first = first.unwrap() as u32;
                    let mut expected = BTreeSet::new();
                    if first < space {
                        let theirs = pages(&processes[first as usize]);
                        expected = pages(maps).intersection(&theirs).copied().collect();
                        if let Some(known) = views.get(&space) {
                            let is_copied = |page: &u64| copied.iter().any(|range| {
                                range.space.0 == space && range.start / PAGE <= *page && *page < range.end / PAGE
                            });
                            expected.retain(|page| known.contains(page) && !is_copied(page));
                        }
                        views.insert(space, expected.clone());
                    }
                    let mut found = BTreeSet::new();
                    for view in out.views.iter().filter(|view| view.range.space.0 == space) {
                        prop_assert_eq!(view.memory.at, view.range.start);
                        prop_assert_eq!(view.memory.space.0, first);
                        found.extend(view.range.start / PAGE..view.range.end / PAGE);
                    }
                    prop_assert_eq!(&found, &expected);
                    let listed = ProcessMaps {
                        mappings: in_space(&out, SpaceId(space)).to_vec(),
                        shareable: Vec::new(),
                    };
                    let rest: BTreeSet<u64> = pages(maps).difference(&expected).copied().collect();
                    prop_assert_eq!(pages(&listed), rest);
                }
                prop_assert!(out.views.is_sorted_by(|a, b| a.range < b.range));
                prop_assert!(out.mappings.is_sorted_by(|a, b| a.range < b.range));
            }
        }
    }
}
