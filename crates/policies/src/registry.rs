//! Registry of policies by name: what each tracks and needs, and a constructor from a line of text.
//!
//! A line is `NAME` or `NAME:key=value,…`. The columns of policy listings (MULTI-CLOCK's table I)
//! are taken from here.

pub use tierscope_core::Need;
use tierscope_core::{Error, ErrorKind, Policy, Result};

use crate::settings::{Settings, described, read};
use crate::{
    amp, autotiering, cold_regions, hemem, hemem_nemo, hot_region, memtis, mglru, mglru_linear,
    mglru_telescope, multi_clock, nimble, nimble_selection, reclaim, static_tiering, thermostat,
    tpp,
};

/// Sampling rate of accesses that a policy requires, by its source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// One in this many loads, and one in this many stores, per core.
    Every(u64),
    /// As many samples as can be taken with this share of a CPU's time.
    Share(f64),
}

/// Description of a setting, for listings and help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Name of the setting.
    pub name: &'static str,
    /// Meaning of the setting.
    pub about: &'static str,
    /// Default value of the setting, as text.
    pub default: String,
}

/// A policy's description, as in listings, with its constructor.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name of the policy.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Paper or source code that it follows.
    pub source: &'static str,
    /// How the policy detects accesses.
    pub tracks: &'static str,
    /// Unit of migration.
    pub granularity: &'static str,
    /// Criterion of promotion.
    pub promotes: &'static str,
    /// Criterion of demotion.
    pub demotes: &'static str,
    /// Cost of detecting accesses.
    pub cost: &'static str,
    /// Bytes of state per page of 4 KiB; `None` if the state does not grow with the number of
    /// pages.
    pub page_bytes: Option<usize>,
    /// Evidence without which the policy does nothing.
    pub needs: &'static [Need],
    /// Optional evidence, used if available.
    pub uses: &'static [Need],
    /// Required sampling rate; `None` for a policy that needs no samples.
    pub sampling: Option<Sampling>,
    /// It reclaims memory and migrates nothing: one tier suffices.
    pub reclaims: bool,
    make: fn(&str) -> Result<Box<dyn Policy>>,
    keys: fn() -> Vec<Key>,
}

impl Entry {
    /// The policy, with settings given as `key=value,…` or empty.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an unknown key, an invalid value, or inconsistent settings.
    pub fn make(&self, settings: &str) -> Result<Box<dyn Policy>> {
        (self.make)(settings)
    }

    /// The policy's settings.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        (self.keys)()
    }

    /// Needed evidence that is not among `there`.
    pub fn lacks<'a>(&'a self, there: &'a [Need]) -> impl Iterator<Item = Need> + 'a {
        self.needs.iter().copied().filter(|need| !there.contains(need))
    }
}

/// The function `Entry::make` of a policy, from its default configuration and its constructor.
macro_rules! made {
    ($name:literal, $config:expr, $make:expr) => {
        (|line: &str| {
            let mut config = $config;
            read($name, line, &mut config)?;
            Ok(Box::new($make(config)) as Box<dyn Policy>)
        }) as fn(&str) -> Result<Box<dyn Policy>>
    };
}

fn keys_of(settings: &mut dyn Settings) -> Vec<Key> {
    let key = |(name, about, default)| Key { name, about, default };
    described(settings).into_iter().map(key).collect()
}

/// A policy without settings.
struct Nothing;

impl Settings for Nothing {
    fn visit(&mut self, _: &mut dyn crate::settings::Visit) {}
}

const BITS_OF_LISTS: &str = "1024 entries of each list a second";
const BY_ACCESSED: &str = "ACCESSED bits";
const BY_FAULTS: &str = "hint faults";
const BY_COUNTERS: &str = "counters in the memory controller";
const BY_COUNTERS_AND_SAMPLES: &str = "counters of slow memory, samples of fast memory";

static ENTRIES: &[Entry] = &[
    Entry {
        name: "static",
        about: "a page stays where it was put first",
        source: "MULTI-CLOCK (HPCA'22), section II-D",
        tracks: "nothing",
        granularity: "none",
        promotes: "never",
        demotes: "never",
        cost: "none",
        page_bytes: None,
        needs: &[],
        uses: &[],
        sampling: None,
        reclaims: false,
        make: made!("static", Nothing, |_| static_tiering::Static),
        keys: Vec::new,
    },
    Entry {
        name: "multi_clock",
        about: "recency and frequency by one more list beside active and inactive",
        source: "Maruf et al., HPCA'22",
        tracks: BY_ACCESSED,
        granularity: "pages",
        promotes: "four accesses in four scans",
        demotes: "two scans without, under pressure",
        cost: BITS_OF_LISTS,
        page_bytes: Some(multi_clock::MultiClock::PAGE_BYTES),
        needs: &[Need::AccessBits],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: None,
        reclaims: false,
        make: made!("multi_clock", multi_clock::Config::default(), multi_clock::MultiClock::new),
        keys: || keys_of(&mut multi_clock::Config::default()),
    },
    Entry {
        name: "nimble",
        about: "whole lists scanned by halves; active pages change places with inactive ones",
        source: "Yan et al., ASPLOS'19",
        tracks: BY_ACCESSED,
        granularity: "pages",
        promotes: "recency: the active list",
        demotes: "recency: the inactive list, for room",
        cost: "half of all entries at each call",
        page_bytes: Some(crate::clock::Clock::PAGE_BYTES),
        needs: &[Need::AccessBits],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: None,
        reclaims: false,
        make: made!("nimble", nimble::Config::default(), nimble::Nimble::new),
        keys: || keys_of(&mut nimble::Config::default()),
    },
    Entry {
        name: "nimble-selection",
        about: "Nimble's choice of pages alone, as the MULTI-CLOCK paper compares with it",
        source: "MULTI-CLOCK (HPCA'22), sections II-D and V-C",
        tracks: BY_ACCESSED,
        granularity: "pages",
        promotes: "recency: a fixed number from the active list",
        demotes: "recency: the least recently used, for room",
        cost: BITS_OF_LISTS,
        page_bytes: Some(crate::clock::Clock::PAGE_BYTES),
        needs: &[Need::AccessBits],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: None,
        reclaims: false,
        make: made!(
            "nimble-selection",
            nimble_selection::Config::default(),
            nimble_selection::NimbleSelection::new
        ),
        keys: || keys_of(&mut nimble_selection::Config::default()),
    },
    Entry {
        name: "autotiering-cpm",
        about: "a page that faults comes up where there is room",
        source: "Kim, Choe and Ahn, USENIX ATC'21",
        tracks: BY_FAULTS,
        granularity: "pages",
        promotes: "recency: one fault",
        demotes: "never",
        cost: "256 MiB armed a second, a fault for each page touched",
        page_bytes: Some(autotiering::AutoTiering::PAGE_BYTES),
        needs: &[Need::HintFaults],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: None,
        reclaims: false,
        make: made!(
            "autotiering-cpm",
            autotiering::Config::of(autotiering::Variant::Cpm),
            autotiering::AutoTiering::new
        ),
        keys: || keys_of(&mut autotiering::Config::of(autotiering::Variant::Cpm)),
    },
    Entry {
        name: "autotiering-opm",
        about: "likewise, and the page with the emptiest history of eight scans makes room",
        source: "Kim, Choe and Ahn, USENIX ATC'21",
        tracks: BY_FAULTS,
        granularity: "pages",
        promotes: "recency: one fault",
        demotes: "frequency: accesses in the last eight scans",
        cost: "256 MiB armed a second, a fault for each page touched",
        page_bytes: Some(autotiering::AutoTiering::PAGE_BYTES),
        needs: &[Need::HintFaults],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: None,
        reclaims: false,
        make: made!(
            "autotiering-opm",
            autotiering::Config::of(autotiering::Variant::Opm),
            autotiering::AutoTiering::new
        ),
        keys: || keys_of(&mut autotiering::Config::of(autotiering::Variant::Opm)),
    },
    Entry {
        name: "autonuma",
        about: "the kernel's memory tiering: pages that fault soon after being armed",
        source: "Linux kernel/sched/fair.c",
        tracks: BY_FAULTS,
        granularity: "pages",
        promotes: "recency: time from arming to the fault",
        demotes: "the kernel's inactive list, under pressure",
        cost: "256 MiB of the slow tiers armed a second, a fault for each page touched",
        page_bytes: Some(crate::clock::Clock::PAGE_BYTES),
        needs: &[Need::HintFaults, Need::AccessBits],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: None,
        reclaims: false,
        make: made!("autonuma", tpp::Config::of(tpp::Variant::AutoNuma), tpp::Tpp::new),
        keys: || keys_of(&mut tpp::Config::of(tpp::Variant::AutoNuma)),
    },
    Entry {
        name: "tpp",
        about: "likewise, from the active list only, with room kept free beforehand",
        source: "Maruf et al., ASPLOS'23",
        tracks: BY_FAULTS,
        granularity: "pages",
        promotes: "recency: two faults",
        demotes: "the kernel's inactive list, early",
        cost: "256 MiB of the slow tiers armed a second, a fault for each page touched",
        page_bytes: Some(crate::clock::Clock::PAGE_BYTES),
        needs: &[Need::HintFaults, Need::AccessBits],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: None,
        reclaims: false,
        make: made!("tpp", tpp::Config::of(tpp::Variant::Tpp), tpp::Tpp::new),
        keys: || keys_of(&mut tpp::Config::of(tpp::Variant::Tpp)),
    },
    Entry {
        name: "thermostat",
        about: "as much memory is slow as costs the target 3 %",
        source: "Agarwal and Wenisch, ASPLOS'17",
        tracks: "ACCESSED bits and hint faults of a sample",
        granularity: "2 MiB",
        promotes: "frequency: too many accesses to the slow tier",
        demotes: "frequency: few enough accesses",
        cost: "5 % of the fast tier's entries in 30 s, faults on 50 pages of each huge one",
        page_bytes: None,
        needs: &[Need::HintFaults, Need::AccessBits],
        uses: &[Need::Pressure],
        sampling: None,
        reclaims: false,
        make: made!("thermostat", thermostat::Config::default(), thermostat::Thermostat::new),
        keys: || keys_of(&mut thermostat::Config::default()),
    },
    Entry {
        name: "hemem",
        about: "sampled accesses, huge pages, hot and cold FIFOs (October 2021 on)",
        source: "Raybuck et al., SOSP'21",
        tracks: "sampled loads and stores",
        granularity: "2 MiB, mappings from 1 GB on",
        promotes: "frequency: 4 samples",
        demotes: "cold for longest, for room",
        cost: "every 19997th load and store sampled",
        page_bytes: None,
        needs: &[Need::Samples],
        uses: &[Need::Pressure],
        sampling: Some(Sampling::Every(19_997)),
        reclaims: false,
        make: made!("hemem", hemem::Config::current(), |config| hemem::HeMem::new("hemem", config)),
        keys: || keys_of(&mut hemem::Config::current()),
    },
    Entry {
        name: "hemem-first",
        about: "its first revision: 8 samples, cooling above 18",
        source: "Raybuck et al., SOSP'21",
        tracks: "sampled loads and stores",
        granularity: "2 MiB, mappings from 1 GB on",
        promotes: "frequency: 8 samples",
        demotes: "cold for longest, for room",
        cost: "every 5003rd load and store sampled",
        page_bytes: None,
        needs: &[Need::Samples],
        uses: &[Need::Pressure],
        sampling: Some(Sampling::Every(5_003)),
        reclaims: false,
        make: made!("hemem-first", hemem::Config::first(), |config| hemem::HeMem::new(
            "hemem-first",
            config
        )),
        keys: || keys_of(&mut hemem::Config::first()),
    },
    Entry {
        name: "hemem-nemo",
        about: "HeMem's first revision; requests to slow memory are counted in its controllers",
        source: "Li et al., Finding NEMO, section 5.1",
        tracks: BY_COUNTERS_AND_SAMPLES,
        granularity: "2 MiB, mappings from 1 GB on",
        promotes: "frequency: 8 in 5003 requests each",
        demotes: "cold for longest, for room",
        cost: "all counters read every second, every 5003rd load and store sampled",
        page_bytes: None,
        needs: &[Need::Counters, Need::Samples],
        uses: &[Need::Pressure],
        sampling: Some(Sampling::Every(5_003)),
        reclaims: false,
        make: made!("hemem-nemo", hemem_nemo::Config::default(), |config| {
            hemem_nemo::HeMemNemo::new(hemem_nemo::Sees::Slow, config)
        }),
        keys: || keys_of(&mut hemem_nemo::Config::default()),
    },
    Entry {
        name: "hemem-nemo-all",
        about: "likewise, with controllers in front of fast memory too and nothing sampled",
        source: "Li et al., Finding NEMO, section 5.1, beyond its prototype",
        tracks: BY_COUNTERS,
        granularity: "2 MiB, mappings from 1 GB on",
        promotes: "frequency: 8 in 5003 requests each",
        demotes: "cold for longest, for room",
        cost: "all counters read every second",
        page_bytes: None,
        needs: &[Need::Counters],
        uses: &[Need::Pressure],
        sampling: None,
        reclaims: false,
        make: made!("hemem-nemo-all", hemem_nemo::Config::default(), |config| {
            hemem_nemo::HeMemNemo::new(hemem_nemo::Sees::All, config)
        }),
        keys: || keys_of(&mut hemem_nemo::Config::default()),
    },
    Entry {
        name: "memtis",
        about: "as many pages are hot as the fast tier holds; skewed huge pages are split",
        source: "Lee et al., SOSP'23",
        tracks: "sampled loads and stores",
        granularity: "4 KiB and 2 MiB",
        promotes: "frequency: a histogram's upper bins",
        demotes: "frequency: neither hot nor warm",
        cost: "sampling at 3 % of a CPU (the machine's affair)",
        page_bytes: Some(memtis::Memtis::PAGE_BYTES),
        needs: &[Need::Samples],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: Some(Sampling::Share(0.03)),
        reclaims: false,
        make: made!("memtis", memtis::Config::default(), memtis::Memtis::new),
        keys: || keys_of(&mut memtis::Config::default()),
    },
    Entry {
        name: "memtis-nemo",
        about: "MEMTIS; requests to slow memory are counted in its controllers, base pages by turns",
        source: "Li et al., Finding NEMO, section 5.2",
        tracks: BY_COUNTERS_AND_SAMPLES,
        granularity: "4 KiB and 2 MiB",
        promotes: "frequency: a histogram's upper bins",
        demotes: "frequency: neither hot nor warm",
        cost: "all counters read every 500 ms, every 5003rd load and store sampled",
        page_bytes: Some(memtis::Memtis::PAGE_BYTES),
        needs: &[Need::Counters, Need::Samples],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: Some(Sampling::Every(5_003)),
        reclaims: false,
        make: made!("memtis-nemo", memtis::nemo::Config::default(), |config| {
            memtis::nemo::MemtisNemo::new(hemem_nemo::Sees::Slow, config)
        }),
        keys: || keys_of(&mut memtis::nemo::Config::default()),
    },
    Entry {
        name: "memtis-nemo-all",
        about: "likewise, with controllers in front of fast memory too",
        source: "Li et al., Finding NEMO, section 5.2, beyond its prototype",
        tracks: BY_COUNTERS_AND_SAMPLES,
        granularity: "4 KiB and 2 MiB",
        promotes: "frequency: a histogram's upper bins",
        demotes: "frequency: neither hot nor warm",
        cost: "all counters read every 500 ms, every 5003rd load and store sampled",
        page_bytes: Some(memtis::Memtis::PAGE_BYTES),
        needs: &[Need::Counters, Need::Samples],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: Some(Sampling::Every(5_003)),
        reclaims: false,
        make: made!("memtis-nemo-all", memtis::nemo::Config::default(), |config| {
            memtis::nemo::MemtisNemo::new(hemem_nemo::Sees::All, config)
        }),
        keys: || keys_of(&mut memtis::nemo::Config::default()),
    },
    Entry {
        name: "amp-lru",
        about: "all pages are scanned; who was accessed last comes",
        source: "MULTI-CLOCK (HPCA'22), section II-C, on AMP",
        tracks: BY_ACCESSED,
        granularity: "pages",
        promotes: "recency",
        demotes: "recency, for room",
        cost: "all entries at each scan",
        page_bytes: Some(amp::Amp::PAGE_BYTES),
        needs: &[Need::AccessBits],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: None,
        reclaims: false,
        make: made!("amp-lru", amp::Config::of(amp::Variant::Lru), amp::Amp::new),
        keys: || keys_of(&mut amp::Config::of(amp::Variant::Lru)),
    },
    Entry {
        name: "amp-lfu",
        about: "all pages are scanned; who was accessed most often comes",
        source: "MULTI-CLOCK (HPCA'22), section II-C, on AMP",
        tracks: BY_ACCESSED,
        granularity: "pages",
        promotes: "frequency",
        demotes: "frequency, for room",
        cost: "all entries at each scan",
        page_bytes: Some(amp::Amp::PAGE_BYTES),
        needs: &[Need::AccessBits],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: None,
        reclaims: false,
        make: made!("amp-lfu", amp::Config::of(amp::Variant::Lfu), amp::Amp::new),
        keys: || keys_of(&mut amp::Config::of(amp::Variant::Lfu)),
    },
    Entry {
        name: "amp-random",
        about: "all pages are scanned; anybody who was accessed comes",
        source: "MULTI-CLOCK (HPCA'22), section II-C, on AMP",
        tracks: BY_ACCESSED,
        granularity: "pages",
        promotes: "by lot, of those accessed",
        demotes: "by lot, for room",
        cost: "all entries at each scan",
        page_bytes: Some(amp::Amp::PAGE_BYTES),
        needs: &[Need::AccessBits],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: None,
        reclaims: false,
        make: made!("amp-random", amp::Config::of(amp::Variant::Random), amp::Amp::new),
        keys: || keys_of(&mut amp::Config::of(amp::Variant::Random)),
    },
    Entry {
        name: "hot_region",
        about: "hot regions of up to 4 GB, the hottest first, 10 GB a round",
        source: "the Telescope article, data tiering",
        tracks: "whatever instrument gives regions",
        granularity: "regions",
        promotes: "frequency: 5 accesses in 120 s",
        demotes: "the fewest accesses, for room",
        cost: "the instrument's",
        page_bytes: None,
        needs: &[Need::Regions],
        uses: &[Need::AccessBits, Need::Pressure],
        sampling: None,
        reclaims: false,
        make: made!("hot_region", hot_region::Config::default(), hot_region::HotRegion::new),
        keys: || keys_of(&mut hot_region::Config::default()),
    },
    Entry {
        name: "mglru",
        about: "generations of pages as the kernel keeps them; the oldest are given back",
        source: "Linux mm/vmscan.c",
        tracks: BY_ACCESSED,
        granularity: "pages",
        promotes: "never",
        demotes: "gives back the oldest of up to four generations",
        cost: "all entries of 2 MiB, leaves under young ones that a filter knows",
        page_bytes: Some(reclaim::PAGE_BYTES),
        needs: &[Need::AccessBits],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: None,
        reclaims: true,
        make: made!("mglru", reclaim::Config::default(), mglru::Mglru::new),
        keys: || keys_of(&mut reclaim::Config::default()),
    },
    Entry {
        name: "mglru-linear",
        about: "generations of pages, and every leaf looked at in every walk",
        source: "the Telescope article, MGLRU standalone",
        tracks: BY_ACCESSED,
        granularity: "pages",
        promotes: "never",
        demotes: "gives back the oldest of up to four generations",
        cost: "all leaves",
        page_bytes: Some(reclaim::PAGE_BYTES),
        needs: &[Need::AccessBits],
        uses: &[Need::PageEvents, Need::Pressure],
        sampling: None,
        reclaims: true,
        make: made!("mglru-linear", reclaim::Config::default(), mglru_linear::MglruLinear::new),
        keys: || keys_of(&mut reclaim::Config::default()),
    },
    Entry {
        name: "mglru-telescope",
        about: "generations of pages, looked at from above: nothing below an entry that was not accessed",
        source: "the Telescope article, MGLRU + Telescope",
        tracks: BY_ACCESSED,
        granularity: "pages",
        promotes: "never",
        demotes: "gives back the oldest generation, cold regions first",
        cost: "upper entries, and leaves under young ones",
        page_bytes: Some(reclaim::PAGE_BYTES),
        needs: &[Need::AccessBits],
        uses: &[Need::Regions, Need::PageEvents, Need::Pressure],
        sampling: None,
        reclaims: true,
        make: made!(
            "mglru-telescope",
            mglru_telescope::MglruTelescope::defaults(),
            mglru_telescope::MglruTelescope::new
        ),
        keys: || keys_of(&mut mglru_telescope::MglruTelescope::defaults()),
    },
    Entry {
        name: "cold-regions",
        about: "regions in which an instrument found no access for so long are given back",
        source: "DAMON-based proactive reclaim (Linux mm/damon/reclaim.c), on any instrument",
        tracks: "whatever instrument gives regions",
        granularity: "regions",
        promotes: "never",
        demotes: "gives back what was cold longest",
        cost: "the instrument's, and two looks at leaves before they go",
        page_bytes: None,
        needs: &[Need::Regions, Need::AccessBits],
        uses: &[Need::Pressure],
        sampling: None,
        reclaims: true,
        make: made!(
            "cold-regions",
            cold_regions::Config::default(),
            cold_regions::ColdRegions::new
        ),
        keys: || keys_of(&mut cold_regions::Config::default()),
    },
];

/// All policies, in the order of listings.
#[must_use]
pub fn all() -> &'static [Entry] {
    ENTRIES
}

/// The policy with this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Entry> {
    all().iter().find(|entry| entry.name == name)
}

/// Makes a policy from a line, `NAME` or `NAME:key=value,…`.
///
/// # Errors
/// [`ErrorKind::Usage`] if no policy has the name, or as for [`Entry::make`].
pub fn make(line: &str) -> Result<Box<dyn Policy>> {
    let (name, settings) = line.split_once(':').unwrap_or((line, ""));
    let Some(entry) = by_name(name) else {
        let known: Vec<&str> = all().iter().map(|entry| entry.name).collect();
        return Err(Error::new(ErrorKind::Usage, format!("no policy is called `{name}`"))
            .remedy(format!("choose one of {}", known.join(", "))));
    };
    entry.make(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_can_be_made_and_bears_its_name() {
        for entry in all() {
            let made = entry.make("").expect(entry.name);
            assert_eq!(made.name(), entry.name);
            assert_eq!(by_name(entry.name).map(|found| found.name), Some(entry.name));
            assert!(entry.page_bytes.is_none_or(|bytes| bytes <= 16), "{}", entry.name);
        }
    }

    // The settings that a recording stores make the same policy again.
    #[test]
    fn recorded_settings_are_a_line() {
        for entry in all() {
            let settings = entry.make("").expect(entry.name).settings();
            let words: Vec<String> = settings
                .iter()
                .map(|setting| format!("{}={}", setting.name, setting.value))
                .collect();
            let again = make(&format!("{}:{}", entry.name, words.join(","))).expect(entry.name);
            assert_eq!(again.settings(), settings);
            let keys = entry.keys();
            assert_eq!(keys.len(), settings.len(), "{}", entry.name);
            for (key, setting) in keys.iter().zip(settings) {
                assert_eq!((key.name, &key.default), (setting.name, &setting.value));
                assert!(!key.about.is_empty(), "{}", key.name);
            }
        }
    }

    fn refused(line: &str) -> String {
        match make(line) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{line} was made"),
        }
    }

    #[test]
    fn mistakes_are_told_with_what_is_known() {
        assert!(refused("multiclock").contains("; choose one of static, multi_clock, nimble"));
        let error = refused("multi_clock:scan=1024,speed=3");
        assert!(
            error.contains("column 23") && error.contains("choose from interval, scan"),
            "{error}"
        );
        assert!(refused("static:x=1").contains("it has no settings"));
        assert!(refused("hot_region:share=2").contains("`share` is a share"));
        assert!(refused("multi_clock:interval=0s").contains("must be above zero"));
    }

    #[test]
    fn who_needs_samples_says_how_often() {
        for entry in all() {
            let needs = entry.needs.contains(&Need::Samples);
            assert_eq!(entry.sampling.is_some(), needs, "{}", entry.name);
        }
    }

    #[test]
    fn what_lacks_evidence_is_told() {
        let entry = by_name("tpp").expect("it is there");
        let lacks: Vec<String> =
            entry.lacks(&[Need::AccessBits]).map(|need| need.to_string()).collect();
        assert_eq!(lacks, ["hint faults"]);
    }
}
