//! State of the plugin while QEMU runs, and the callbacks that QEMU calls.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use std::sync::{Once, OnceLock};
use std::time::Duration;

use tierscope_hw::cache::Cache;
use tierscope_wire::guest_ram;
use tierscope_wire::stats::{self, Block, Count, Switch};
use tierscope_wire::touched::{self, Marker};
use tierscope_wire::{Producer, Record, ring};

use crate::allocations::{Registers, SizeFrom};
use crate::calls::{self, Calls, Id, Info, NO_REGISTERS, READS_AND_WRITES};
use crate::clock::Clock;
use crate::controllers::Telemetry;
use crate::device::{self, Device};
use crate::functions::Functions;
use crate::interrupts::Interrupts;
use crate::log::{self, say};
use crate::memory::{At, Memory, mapping_of};
use crate::opcode::is_non_temporal;
use crate::options::{MOST_CPUS, Options, Part};
use crate::qemu_state::{Qemu, Search};
use crate::shared::map_words;
use crate::tiers::Tiers;
use crate::vcpu::{CALLBACKS, Ring, TOUCHED, Vcpu, access_flags, parts_of};

/// Version of the plugin interface, which QEMU checks before it loads the plugin.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU looks it up by this name")]
pub static qemu_plugin_version: c_int = calls::VERSION;

/// State of the plugin.
#[derive(Debug)]
pub struct Run {
    /// The parsed options.
    pub options: Options,
    /// Geometry of caches and TLBs.
    pub machine: tierscope_hw::Machine,
    /// The clock of all records.
    pub clock: Clock,
    /// The guest's RAM.
    pub memory: Memory,
    /// System emulation, not user emulation.
    pub system: bool,
    /// QEMU's internal functions, if they were found.
    pub qemu: Option<Qemu>,
    /// Latency and bandwidth of nodes, if that part is enabled.
    pub tiers: Option<Tiers>,
    /// The telemetry device, if that part is enabled.
    pub device: Option<Device>,
    /// Whether the device's counters are fed.
    pub counts: bool,
    /// Functions of the program, if they are recorded.
    pub functions: Option<Functions>,
    /// Access to the program's registers, if allocations are recorded.
    pub registers: Option<Registers>,
    /// Counters and switches, in shared memory.
    pub stats: &'static [AtomicU64],
    calls: Calls,
    parts: u32,
    /// Host address of QEMU's mapping of the device's memory; 0 while unknown.
    device_at: AtomicU64,
    device_bytes: u64,
    device_ours: u64,
    /// Use QEMU's official function for physical addresses.
    official: AtomicBool,
    stop: AtomicBool,
    /// Do not insert callbacks into code that is translated now.
    asleep: AtomicBool,
}

/// Interval at which an inactive plugin checks whether to wake.
const WAKING: Duration = Duration::from_millis(5);

static RUN: OnceLock<Run> = OnceLock::new();
static VCPUS: [AtomicPtr<Vcpu>; MOST_CPUS as usize] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_CPUS as usize];
static FIRST_BLOCK: Once = Once::new();

/// Entry point, called by QEMU when it loads the plugin.
///
/// # Safety
/// QEMU passes arguments as its header specifies: `info` is valid, `arguments` are `count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let words: Vec<String> = (0..count.max(0) as usize)
        // SAFETY: QEMU passes `count` strings.
        .map(|n| unsafe { CStr::from_ptr(*arguments.add(n)) }.to_string_lossy().into_owned())
        .collect();
    // SAFETY: the caller guarantees that `info` is valid.
    let info = unsafe { &*info };
    match install(id, info, &words) {
        Ok(()) => 0,
        Err(cause) => {
            say(cause);
            -1
        }
    }
}

fn install(id: Id, info: &Info, words: &[String]) -> Result<(), String> {
    // SAFETY: a string of QEMU's that is never freed.
    let target = unsafe { CStr::from_ptr(info.target) };
    if target != c"x86_64" {
        return Err(format!("this is a QEMU for {target:?}, not for x86_64"));
    }
    let calls = Calls::find()?;
    let options = read_options(words)?;
    log::open(&options.run)?;
    if !info.system {
        options.check_user_mode()?;
    }
    let run = Run::new(options, calls, info)?;
    let system = run.system;
    RUN.set(run).map_err(|_| "the plugin is loaded twice".to_owned())?;
    // SAFETY: functions of QEMU with the types of its header; the callbacks live as long as the
    // process.
    unsafe {
        (calls.register_vcpu_init_cb)(id, on_vcpu);
        (calls.register_vcpu_tb_trans_cb)(id, on_block);
        (calls.register_atexit_cb)(id, at_exit, std::ptr::null_mut());
        if !system {
            (calls.register_vcpu_syscall_cb)(id, crate::mappings::on_call);
            (calls.register_vcpu_syscall_ret_cb)(id, crate::mappings::on_return);
        }
    }
    Ok(())
}

fn read_options(words: &[String]) -> Result<Options, String> {
    let mut path = None;
    for word in words {
        match word.split_once('=') {
            Some(("options", value)) => path = Some(value),
            _ => return Err(format!("unknown argument {word}: there is only options=FILE")),
        }
    }
    let path = path.ok_or("options=FILE is missing")?;
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    Options::parse(&text).map_err(|cause| format!("{path}: {cause}"))
}

impl Run {
    fn new(options: Options, calls: Calls, info: &Info) -> Result<Self, String> {
        let ours: Vec<u64> = options
            .nodes
            .iter()
            .map(|node| map_words(&node.path, node.bytes).map(|words| words.as_ptr() as u64))
            .collect::<Result<_, _>>()?;
        let stats = map_words(&format!("{}/stats", options.run), stats::bytes_for(options.cpus))?;
        let machine = options.machine()?;
        let tiers = options.tiers_of(&machine);
        let mut run = Run {
            machine,
            clock: Clock::start(),
            memory: Memory::of_q35(&options.nodes, &ours),
            system: info.system,
            qemu: None,
            tiers: options.has(Part::Tiers).then(|| Tiers::new(&tiers, options.nodes.len())),
            device: None,
            counts: options.has(Part::Counters),
            functions: None,
            registers: None,
            stats,
            calls,
            parts: parts_of(&options),
            device_at: AtomicU64::new(0),
            device_bytes: 0,
            device_ours: 0,
            official: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            asleep: AtomicBool::new(options.asleep && info.system),
            options,
        };
        if run.system {
            run.qemu = Some(Qemu::find()?);
        }
        if run.options.has(Part::Device) {
            run.make_device()?;
        }
        if run.options.names && !run.system {
            run.find_names();
        }
        Ok(run)
    }

    /// Enables the recording of functions, and of allocations if QEMU's registers can be read.
    fn find_names(&mut self) {
        self.functions = Some(Functions::new(&self.options.wrappers));
        match Registers::find() {
            Ok(registers) => self.registers = Some(registers),
            Err(cause) => say(format_args!("allocations are not recorded: {cause}")),
        }
    }

    fn make_device(&mut self) -> Result<(), String> {
        let path = format!("{}/device", self.options.run);
        let region = map_words(&path, 0)?;
        let interrupts = Interrupts::request(&format!("{}/device.socket", self.options.run))?;
        let ring_bytes = if self.options.guest_rings { self.options.ring_bytes } else { 0 };
        let mut device = Device::new(region, self.options.cpus, ring_bytes, interrupts)?;
        if let Some(wanted) = &self.options.controllers {
            let bytes: Vec<u64> = self.options.nodes.iter().map(|node| node.bytes).collect();
            let ram = guest_ram::q35(&bytes);
            device = device.with_controllers(Telemetry::new(wanted, &ram, self.options.cpus)?);
        }
        self.device = Some(device);
        (self.device_bytes, self.device_ours) =
            (size_of_val(region) as u64, region.as_ptr() as u64);
        Ok(())
    }

    /// The run and one of its vCPUs; called in the thread of that vCPU.
    #[inline(always)]
    pub(crate) fn and_vcpu(cpu: u32) -> Option<(&'static Run, &'static mut Vcpu)> {
        let vcpu = VCPUS.get(cpu as usize)?.load(Relaxed);
        // SAFETY: allocated once and never freed; QEMU calls back for a vCPU only in that vCPU's
        // thread, and never from within a callback.
        Some((RUN.get()?, unsafe { vcpu.as_mut() }?))
    }

    /// Whether an access is a store.
    pub(crate) fn is_store(&self, info: u32) -> bool {
        // SAFETY: a pure function of QEMU.
        unsafe { (self.calls.mem_is_store)(info) }
    }

    /// log2 of an access's size in bytes.
    pub(crate) fn size_log2(&self, info: u32) -> u8 {
        // SAFETY: a pure function of QEMU.
        unsafe { (self.calls.mem_size_shift)(info) as u8 & 7 }
    }

    /// Location of an access in RAM; `None` outside of RAM. Stores to the telemetry device are
    /// handled here.
    #[inline(always)]
    pub(crate) fn place_of<const STORE: bool>(
        &self,
        vcpu: &mut Vcpu,
        info: u32,
        linear: u64,
    ) -> Option<At> {
        if !self.system {
            return Some(At { physical: linear & ((1 << 47) - 1), node: 0 });
        }
        // SAFETY: called in the callback of an access, as the header requires.
        let place = unsafe { (self.calls.get_hwaddr)(info, linear) }.cast::<u8>();
        if place.is_null() {
            return None;
        }
        // SAFETY: struct qemu_plugin_hwaddr of plugins/api.c in QEMU 7.2: bool is_io, and from byte
        // 8 on the host address. Proven by `qemu_state::Search`.
        let (is_io, host) = unsafe { (*place != 0, *place.add(8).cast::<u64>()) };
        if is_io {
            vcpu.stats.add(Count::Elsewhere, 1);
            return None;
        }
        match self.memory.at_host(host) {
            Some(at) if !self.official.load(Relaxed) => Some(at),
            // SAFETY: `place` was returned for this access, in whose callback this is called.
            Some(at) => {
                Some(At { physical: unsafe { (self.calls.hwaddr_phys_addr)(place.cast()) }, ..at })
            }
            None => {
                self.outside_ram::<STORE>(vcpu, host);
                None
            }
        }
    }

    #[cold]
    fn outside_ram<const STORE: bool>(&self, vcpu: &mut Vcpu, host: u64) {
        let offset = host.wrapping_sub(self.device_at.load(Relaxed));
        match &self.device {
            Some(device) if offset < self.device_bytes => {
                if STORE {
                    let machine = device::Machine {
                        clock: self.clock,
                        tiers: self.tiers.as_ref(),
                        stats: self.stats,
                        counts: self.counts,
                        space: vcpu.space(),
                    };
                    device.stored(offset, &machine, vcpu.stats);
                }
            }
            _ => vcpu.stats.add(Count::Elsewhere, 1),
        }
    }

    /// Switches to the official function, where possible, after a failed proof; returns a message.
    pub(crate) fn fall_back(&self) -> &'static str {
        if self.options.nodes.len() == 1 {
            self.official.store(true, Relaxed);
            "physical addresses come from QEMU's official function"
        } else {
            "physical addresses are unproven: with several nodes QEMU's official function is wrong"
        }
    }

    /// Called at the first block, when the machine is complete: finds QEMU's mappings of the files.
    fn first_block(&'static self) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        if !self.system {
            crate::mappings::begin(&self.options.run, &maps, self.clock);
            if self
                .registers
                .as_ref()
                .is_some_and(|registers| !registers.addresses_are_host_addresses())
            {
                say(
                    "functions are not recorded: the program's addresses are not this process's own",
                );
            }
            return;
        }
        if let Err(cause) = self.memory.find_host(&self.options.nodes, &maps) {
            stop_qemu(&cause);
        }
        if self.device.is_some() {
            let path = format!("{}/device", self.options.run);
            match mapping_of(&maps, &path, self.device_ours) {
                Some(at) => self.device_at.store(at, Relaxed),
                None => {
                    stop_qemu(&format!("{path} is not mapped: the machine has no ivshmem device"))
                }
            }
        }
        if self.asleep.load(Acquire) {
            std::thread::spawn(|| self.wait_for_the_guest());
        }
        if self.options.has(Part::Flush) {
            std::thread::spawn(|| self.flush_until_stopped());
        }
    }

    /// Waits until the lab wakes the plugin, then has all code translated again.
    fn wait_for_the_guest(&self) {
        let (Some(word), Some(qemu)) = (stats::wakefulness(self.stats), self.qemu) else {
            return;
        };
        while word.load(Acquire) == 0 && !self.stop.load(Acquire) {
            std::thread::sleep(WAKING);
        }
        self.asleep.store(false, Release);
        qemu.forget_code();
        word.store(stats::AWAKE, Release);
    }

    fn flush_until_stopped(&self) {
        let Some(qemu) = self.qemu else { return };
        let Some(block) = Block::of(self.stats, 0) else { return };
        while !self.stop.load(Acquire) {
            std::thread::sleep(Duration::from_micros(self.options.flush_us.into()));
            if Switch::Flush.is_on(stats::switched_off(self.stats)) && !self.stop.load(Acquire) {
                (0..self.options.cpus).for_each(|cpu| qemu.flush(cpu));
                block.share(Count::Flushes, 1);
            }
        }
    }

    /// Creates the state and the parts of a new vCPU.
    fn make_vcpu(&self, number: u32) -> Result<Vcpu, String> {
        let stats = Block::of(self.stats, number).ok_or("there are more vCPUs than `cpus` says")?;
        let mut vcpu = Vcpu::new(number, stats);
        let (options, machine) = (&self.options, &self.machine);
        if let (true, Some(llc)) = (options.has(Part::Llc), &machine.llc) {
            let cache = Cache::new(llc, machine.processor.physical_bits);
            vcpu.llc = Some(cache.map_err(|e| e.to_string())?);
        }
        if options.has(Part::Raw) {
            vcpu.raw = Some(self.make_ring("raw", number)?);
        }
        if options.has(Part::Tlb) {
            vcpu.misses = Some(self.make_ring("tlb", number)?);
        }
        if options.has(Part::Touched) {
            let path = format!("{}/touched-{number}", options.run);
            let region = map_words(&path, touched::bytes_for(options.touched_slots))?;
            vcpu.marker = Some(Marker::create(region).map_err(|e| e.to_string())?);
        }
        if self.system {
            vcpu.search = Some(Search::default());
        }
        Ok(vcpu)
    }

    fn make_ring<R: Record>(&self, name: &str, number: u32) -> Result<Ring<R>, String> {
        let region = self.ring_memory(name, number)?;
        let producer = Producer::create(region).map_err(|e| e.to_string())?;
        Ok(Ring::new(producer, self.options.when_full))
    }

    /// Memory for a ring: a file of its own, or device memory that the guest can read.
    fn ring_memory(&self, name: &str, number: u32) -> Result<&'static [AtomicU64], String> {
        match &self.device {
            Some(device) if name == "tlb" && self.options.guest_rings => device
                .ring(number)
                .ok_or_else(|| "the device's memory ends before its rings".into()),
            _ => map_words(&self.ring_path(name, number), self.options.ring_bytes),
        }
    }

    fn ring_path(&self, name: &str, number: u32) -> String {
        format!("{}/{name}-{number}", self.options.run)
    }
}

/// Ends QEMU: at runtime, a plugin has no other way to fail.
fn stop_qemu(cause: &str) -> ! {
    say(cause);
    std::process::exit(1)
}

extern "C" fn on_vcpu(_: Id, number: u32) {
    let Some(run) = RUN.get() else { return };
    let Some(place) = VCPUS.get(number as usize).filter(|_| number < run.options.cpus) else {
        say(format_args!("vCPU {number} is not seen: `cpus` is {}", run.options.cpus));
        return;
    };
    // Thread numbers are reused after a thread's end; its files continue to be used.
    if !place.load(Acquire).is_null() {
        return;
    }
    match run.make_vcpu(number) {
        Ok(vcpu) => {
            place.store(Box::into_raw(Box::new(vcpu)), Release);
        }
        Err(cause) => stop_qemu(&cause),
    }
}

extern "C" fn on_block(_: Id, block: *mut calls::Block) {
    let Some(run) = RUN.get() else { return };
    FIRST_BLOCK.call_once(|| run.first_block());
    if run.asleep.load(Relaxed) {
        return;
    }
    let calls = &run.calls;
    let on_access = CALLBACKS[run.parts as usize];
    if run.parts & TOUCHED != 0 {
        pages_of(run, block).for_each(|page| {
            let page = std::ptr::without_provenance_mut::<c_void>(page as usize);
            // SAFETY: in the callback of a translation, on its block.
            unsafe { (calls.register_vcpu_tb_exec_cb)(block, on_execution, NO_REGISTERS, page) };
        });
    }
    let function = run.functions.as_ref().map_or(0, |functions| name(run, functions, block));
    // SAFETY: in the callback of a translation, on its block.
    unsafe {
        for number in 0..(calls.tb_n_insns)(block) {
            let instruction = (calls.tb_get_insn)(block, number);
            let bytes = (calls.insn_data)(instruction).cast::<u8>();
            let bytes = std::slice::from_raw_parts(bytes, (calls.insn_size)(instruction));
            let flags = access_flags(function, is_non_temporal(bytes));
            let flags = std::ptr::without_provenance_mut::<c_void>(flags as usize);
            (calls.register_vcpu_mem_cb)(
                instruction,
                on_access,
                NO_REGISTERS,
                READS_AND_WRITES,
                flags,
            );
        }
    }
}

/// The function that a block belongs to. If the block starts an allocation function, or is the
/// return site of an allocation call, callbacks for its execution are registered.
fn name(run: &'static Run, functions: &Functions, block: *mut calls::Block) -> u64 {
    let calls = &run.calls;
    // SAFETY: in the callback of a translation, on its block; a block has at least one instruction.
    let first = unsafe { (calls.insn_vaddr)((calls.tb_get_insn)(block, 0)) };
    if run.registers.as_ref().is_some_and(|registers| !registers.addresses_are_host_addresses()) {
        return 0;
    }
    let (function, size_from) = functions.at(first);
    let Some(registers) = &run.registers else { return function };
    let word = |value: u64| std::ptr::without_provenance_mut::<c_void>(value as usize);
    // SAFETY: in the callback of a translation, on its block.
    unsafe {
        if registers.begins(first) {
            (calls.register_vcpu_tb_exec_cb)(block, on_returned, NO_REGISTERS, word(first));
        }
        if let Some(size_from) = size_from {
            (calls.register_vcpu_tb_exec_cb)(
                block,
                on_allocation,
                NO_REGISTERS,
                word(size_from as u64),
            );
        }
    }
    function
}

/// Callback for the execution of a block that starts an allocation function.
extern "C" fn on_allocation(cpu: u32, size_from: *mut c_void) {
    let Some((run, vcpu)) = Run::and_vcpu(cpu) else { return };
    let size_from = SizeFrom::ALL.get(size_from.addr());
    if let (Some(registers), Some(functions), Some(size_from)) =
        (&run.registers, &run.functions, size_from)
    {
        let _ =
            registers.called(&mut vcpu.open, cpu, *size_from, |address| functions.holds(address));
    }
}

/// Callback for the execution of a block to which an allocation call returns.
extern "C" fn on_returned(cpu: u32, site: *mut c_void) {
    let Some((run, vcpu)) = Run::and_vcpu(cpu) else { return };
    let Some(registers) = &run.registers else { return };
    if let Some(allocation) = registers.returned(&mut vcpu.open, cpu, site.addr() as u64) {
        vcpu.allocated(run, allocation);
    }
}

/// Size of a base page in bytes.
const PAGE: u64 = 4096;

/// The pages of a block's instructions: one or two.
fn pages_of(run: &Run, block: *mut calls::Block) -> impl Iterator<Item = u64> {
    let calls = &run.calls;
    // SAFETY: in the callback of a translation, on its block; a block has at least one instruction.
    let (first, last) = unsafe {
        let instruction = |number| (calls.tb_get_insn)(block, number);
        let last = instruction((calls.tb_n_insns)(block).saturating_sub(1));
        let end = (calls.insn_vaddr)(last) + (calls.insn_size)(last) as u64 - 1;
        ((calls.insn_vaddr)(instruction(0)), end)
    };
    (first / PAGE..=last / PAGE).map(|page| page * PAGE)
}

/// Callback for the execution of a block: counts as a touch of its page, like a load.
extern "C" fn on_execution(cpu: u32, page: *mut c_void) {
    if let Some((run, vcpu)) = Run::and_vcpu(cpu) {
        vcpu.executes(run, page.addr() as u64);
    }
}

extern "C" fn at_exit(_: Id, _: *mut c_void) {
    let Some(run) = RUN.get() else { return };
    if run.stop.swap(true, AcqRel) {
        return;
    }
    for number in 0..run.options.cpus {
        for (part, name) in [(Part::Raw, "raw"), (Part::Tlb, "tlb")] {
            if run.options.has(part)
                && let Ok(region) = run.ring_memory(name, number)
            {
                ring::finish(region);
            }
        }
    }
    let lost = stats::sum(run.stats, Count::Lost);
    if lost > 0 {
        say(format_args!("{lost} records were lost"));
    }
}
