//! Kernel functions timed by kprobes through tracefs: how long a call of this process spends in
//! each.
//!
//! A [`Session`] has its own instance of the trace buffer and its own group of probes, so that
//! nothing that others trace is touched; both go when it is dropped, and those of a process that was killed
//! when the next one starts. Needs root and a kernel with
//! `CONFIG_KPROBE_EVENTS` (Documentation/trace/kprobetrace.rst).
//!
//! Times include what the probes themselves cost (some hundred nanoseconds a call): good for the
//! share of each function, not for the time of a short whole.

mod leftovers;

use crate::error::Errno;
use leftovers::Mark;
use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where tracefs is mounted, by the kernel's documentation.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Kilobytes of trace buffer for each CPU: some 100,000 events.
const BUFFER_KB: &str = "4096";

/// Why kernel functions can not be timed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// There is no tracefs.
    #[error("tracefs is not mounted")]
    NotMounted,
    /// Only root may.
    #[error("{} is refused ({errno}): only root may trace the kernel", path.display())]
    Denied {
        /// What was opened.
        path: PathBuf,
        /// Why not.
        errno: Errno,
    },
    /// The kernel was built without them.
    #[error("this kernel has no kprobes (CONFIG_KPROBE_EVENTS)")]
    NoKprobes,
    /// Not one function could be probed.
    #[error("not one of the functions can be probed")]
    NothingProbed,
    /// A file of tracefs refused.
    #[error("{}: {errno}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The trace holds what it should not.
    #[error("the trace has the line {line:?}")]
    Unreadable {
        /// The line.
        line: String,
    },
    /// The trace buffer was too small.
    #[error("the trace buffer overflowed")]
    Overflow,
}

impl TraceError {
    /// The command that would help, where one would.
    pub fn mend(&self) -> Option<String> {
        match self {
            Self::NotMounted => Some("sudo mount -t tracefs nodev /sys/kernel/tracing".to_owned()),
            _ => None,
        }
    }
}

/// A function that could not be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its place among those asked for.
    pub function: usize,
    /// Whether there is no such function: another kernel's name, a module that is not loaded, or
    /// inlined into its callers.
    pub absent: bool,
    /// Why, in words.
    pub why: String,
}

/// What happened at a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The function's place among those asked for.
    pub function: usize,
    /// Whether it returned; else it was entered.
    pub returned: bool,
    /// When, nanoseconds of the monotonic clock.
    pub ns: u64,
}

/// Time in one function, all its calls together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Calls that returned, but for those from within another one of it.
    pub calls: u64,
    /// From entry to return of these, nanoseconds.
    pub total_ns: u64,
    /// The same without the probed functions that it called, nanoseconds.
    pub own_ns: u64,
}

/// Probes on kernel functions, for the thread that records.
#[derive(Debug)]
pub struct Session {
    root: PathBuf,
    instance: PathBuf,
    group: String,
    /// Of each event: its number in the trace, and what it means.
    ids: Vec<(u32, usize, bool)>,
    probes: Vec<String>,
    functions: usize,
    /// Tells other processes that this one still lives.
    _mark: Option<Mark>,
}

impl Session {
    /// Probes the functions that can be; the others are named. Removes what killed processes left.
    ///
    /// # Errors
    /// [`TraceError`] if none can be probed at all.
    pub fn start(functions: &[&str]) -> Result<(Self, Vec<Refused>), TraceError> {
        Self::start_at(&root()?, functions)
    }

    fn start_at(root: &Path, functions: &[&str]) -> Result<(Self, Vec<Refused>), TraceError> {
        static SESSIONS: AtomicU32 = AtomicU32::new(0);
        if !root.join("kprobe_events").exists() {
            return Err(TraceError::NoKprobes);
        }
        leftovers::remove(root);
        let (group, instance) = loop {
            let group = leftovers::name(SESSIONS.fetch_add(1, Ordering::Relaxed));
            let instance = root.join("instances").join(&group);
            match fs::create_dir(&instance) {
                Ok(()) => break (group, instance),
                // Of a killed process that had the same number: it goes when this one has ended.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(refused(&instance, &error)),
            }
        };
        let mark = Mark::new(&instance);
        // From here on, dropping it removes what was made.
        let mut session = Self {
            root: root.to_owned(),
            instance,
            group,
            ids: Vec::new(),
            probes: Vec::new(),
            functions: functions.len(),
            _mark: mark,
        };
        let mut not_probed = Vec::new();
        for (function, name) in functions.iter().enumerate() {
            if let Err(why) = session.probe(function, name) {
                not_probed.push(Refused { function, absent: false, why });
            }
        }
        explain(&mut not_probed, functions);
        if session.ids.is_empty() {
            return Err(TraceError::NothingProbed);
        }
        session.set("trace_clock", "mono")?;
        session.set("buffer_size_kb", BUFFER_KB)?;
        session.set("tracing_on", "0")?;
        // Nanoseconds and event numbers, in place of text for people.
        session.set("trace_options", "raw")?;
        let enable = format!("events/{}/enable", session.group);
        session.set(&enable, "1")?;
        Ok((session, not_probed))
    }

    /// Runs `work` on this thread and tells what the probed functions did meanwhile.
    ///
    /// # Errors
    /// [`TraceError`]; `work` may have run then.
    pub fn record<T>(&self, work: impl FnOnce() -> T) -> Result<(T, Vec<Event>), TraceError> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().to_string();
        self.set("set_event_pid", &thread)?;
        // Opening for truncation empties the buffer.
        self.set("trace", "")?;
        self.set("tracing_on", "1")?;
        let result = work();
        self.set("tracing_on", "0")?;
        let path = self.instance.join("trace");
        let text = fs::read_to_string(&path).map_err(|error| refused(&path, &error))?;
        Ok((result, parse(&text, &self.ids)?))
    }

    /// As [`spent`], of the functions of this session.
    pub fn spent(&self, events: &[Event]) -> (Vec<Spent>, u64) {
        spent(events, self.functions)
    }

    fn probe(&mut self, function: usize, name: &str) -> Result<(), String> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if name.is_empty() || !name.chars().all(word) {
            return Err(format!("{name:?} is no function's name"));
        }
        let mut made = Vec::with_capacity(2);
        for (letter, returned) in [("p", false), ("r", true)] {
            let event = format!("{}/{letter}{function}", self.group);
            leftovers::define(&self.root, &format!("{letter}:{event} {name}"))
                .map_err(|error| format!("the kernel refuses a probe there ({error})"))?;
            self.probes.push(event.clone());
            let path = self.root.join("events").join(&event).join("id");
            let id = fs::read_to_string(&path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            let id = id.trim().parse().map_err(|_| format!("{}: {id:?}", path.display()))?;
            made.push((id, function, returned));
        }
        self.ids.append(&mut made);
        Ok(())
    }

    fn set(&self, file: &str, value: &str) -> Result<(), TraceError> {
        let path = self.instance.join(file);
        let mut open = fs::OpenOptions::new();
        let written = open.write(true).truncate(true).open(&path).and_then(|mut opened| {
            if value.is_empty() { Ok(()) } else { opened.write_all(value.as_bytes()) }
        });
        written.map_err(|error| refused(&path, &error))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // What can not be removed now stays disabled: there is nobody to tell.
        let _ = self.set(&format!("events/{}/enable", self.group), "0");
        for probe in &self.probes {
            let _ = leftovers::define(&self.root, &format!("-:{probe}"));
        }
        let _ = fs::remove_dir(&self.instance);
    }
}

/// The kernel answers alike for a function that is absent and for one that it keeps free of probes;
/// its list of symbols tells them apart.
fn explain(refused: &mut [Refused], functions: &[&str]) {
    if refused.is_empty() {
        return;
    }
    let Ok(symbols) = fs::read_to_string("/proc/kallsyms") else { return };
    let known: HashSet<&str> =
        symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    for refused in refused {
        refused.absent = functions.get(refused.function).is_some_and(|name| !known.contains(name));
        if refused.absent {
            "no such function in this kernel, or inlined everywhere".clone_into(&mut refused.why);
        }
    }
}

/// The mounted tracefs.
fn root() -> Result<PathBuf, TraceError> {
    for root in ROOTS.map(Path::new) {
        match fs::metadata(root.join("tracing_on")) {
            Ok(_) => return Ok(root.to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(refused(root, &error));
            }
            Err(_) => {}
        }
    }
    Err(TraceError::NotMounted)
}

fn refused(path: &Path, error: &std::io::Error) -> TraceError {
    let path = path.to_owned();
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    match errno {
        Errno::ACCESS | Errno::PERM => TraceError::Denied { path, errno },
        errno => TraceError::File { path, errno },
    }
}

/// The events of a trace with option `raw`: `PID CPU NS Unknown type ID`, since the kernel has no
/// raw form for events of probes but their number. `ids` says what each means.
fn parse(text: &str, ids: &[(u32, usize, bool)]) -> Result<Vec<Event>, TraceError> {
    let mut events = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.contains("LOST") {
            return Err(TraceError::Overflow);
        }
        // Heads of the output.
        if line.starts_with('#') || line.starts_with("CPU") {
            continue;
        }
        let unreadable = || TraceError::Unreadable { line: line.chars().take(200).collect() };
        let mut words = line.split_whitespace();
        let ns = words.nth(2).and_then(|word| word.parse().ok()).ok_or_else(unreadable)?;
        let id: u32 = words.last().and_then(|word| word.parse().ok()).ok_or_else(unreadable)?;
        let (_, function, returned) =
            *ids.iter().find(|(known, ..)| *known == id).ok_or_else(unreadable)?;
        events.push(Event { function, returned, ns });
    }
    Ok(events)
}

/// The time spent in each of `functions` functions by the calls of one thread, and in the outermost
/// ones together, nanoseconds. A call whose return was missed counts as its caller's time.
pub fn spent(events: &[Event], functions: usize) -> (Vec<Spent>, u64) {
    spent_by(events, &(0..functions).collect::<Vec<_>>(), functions)
}

/// As [`spent`], of `groups` groups of functions; `group_of` has that of each function. What a
/// function of a group calls of the same group is no call of the group, and its time counts once.
pub fn spent_by(events: &[Event], group_of: &[usize], groups: usize) -> (Vec<Spent>, u64) {
    struct Frame {
        function: usize,
        since: u64,
        inner: u64,
    }
    let mut spent = vec![Spent::default(); groups];
    let group = |function: usize| group_of.get(function).copied();
    let (mut stack, mut outermost) = (Vec::<Frame>::new(), 0u64);
    for event in events {
        if !event.returned {
            stack.push(Frame { function: event.function, since: event.ns, inner: 0 });
            continue;
        }
        // A return without its entry: recording began inside of the call.
        let Some(at) = stack.iter().rposition(|frame| frame.function == event.function) else {
            continue;
        };
        // Above it are calls whose return was missed.
        stack.truncate(at + 1);
        let Some(frame) = stack.pop() else { continue };
        let total = event.ns.saturating_sub(frame.since);
        let of = group(event.function);
        if let Some(spent) = of.and_then(|of| spent.get_mut(of)) {
            if !stack.iter().any(|frame| group(frame.function) == of) {
                spent.calls += 1;
                spent.total_ns = spent.total_ns.saturating_add(total);
            }
            spent.own_ns = spent.own_ns.saturating_add(total.saturating_sub(frame.inner));
        }
        match stack.last_mut() {
            Some(caller) => caller.inner = caller.inner.saturating_add(total),
            None => outermost = outermost.saturating_add(total),
        }
    }
    (spent, outermost)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [(u32, usize, bool); 4] =
        [(1700, 0, false), (1701, 0, true), (1702, 1, false), (1703, 1, true)];

    fn event(function: usize, returned: bool, ns: u64) -> Event {
        Event { function, returned, ns }
    }

    #[test]
    fn a_trace_in_raw_form() {
        let text = "# tracer: nop\n#\n\
            812 1 81650421337 Unknown type 1700\n\
            812 1 81650422100 Unknown type 1702\n\
            812 1 81650423100 Unknown type 1703\n\
            812 1 81650423337 Unknown type 1701\n";
        let events = parse(text, &IDS).unwrap();
        assert_eq!(events.len(), 4);
        assert_eq!(events[1], event(1, false, 81_650_422_100));
        let (spent, outermost) = spent(&events, 2);
        assert_eq!(spent[0], Spent { calls: 1, total_ns: 2000, own_ns: 1000 });
        assert_eq!(spent[1], Spent { calls: 1, total_ns: 1000, own_ns: 1000 });
        assert_eq!(outermost, 2000);
    }

    #[test]
    fn one_function_of_a_group_within_another_counts_once() {
        // 1 within 0, both of group 0; 2, of group 1, within 1; then 0 within itself.
        let events = [
            event(0, false, 0),
            event(1, false, 10),
            event(2, false, 20),
            event(2, true, 50),
            event(1, true, 80),
            event(0, true, 100),
            event(0, false, 200),
            event(0, false, 210),
            event(0, true, 220),
            event(0, true, 240),
        ];
        let (groups, outermost) = spent_by(&events, &[0, 0, 1], 2);
        assert_eq!(groups[0], Spent { calls: 2, total_ns: 140, own_ns: 110 });
        assert_eq!(groups[1], Spent { calls: 1, total_ns: 30, own_ns: 30 });
        assert_eq!(outermost, 140);
        let (functions, _) = spent(&events, 3);
        assert_eq!(functions[0], Spent { calls: 2, total_ns: 140, own_ns: 70 });
        assert_eq!(functions[1], Spent { calls: 1, total_ns: 70, own_ns: 40 });
    }

    #[test]
    fn what_is_no_trace_is_said() {
        for text in ["hello", "1 2 3", "1 2 x Unknown type 1700", "1 2 3 Unknown type 9"] {
            let error = parse(text, &IDS).unwrap_err();
            assert_eq!(error, TraceError::Unreadable { line: text.to_owned() });
        }
        let lost = "CPU:1 [LOST 8115 EVENTS]\n812 1 5 Unknown type 1700\n";
        assert_eq!(parse(lost, &IDS), Err(TraceError::Overflow));
        assert_eq!(parse("", &IDS), Ok(vec![]));
    }

    #[test]
    fn calls_add_up_whatever_is_missing() {
        // Function 1 twice within 0; a return without entry first; an entry without return last.
        let events = [
            event(1, true, 5),
            event(0, false, 10),
            event(1, false, 20),
            event(1, true, 30),
            event(1, false, 40),
            event(1, true, 45),
            event(0, true, 100),
            event(0, false, 200),
        ];
        let (times, outermost) = spent(&events, 2);
        assert_eq!(times[0], Spent { calls: 1, total_ns: 90, own_ns: 75 });
        assert_eq!(times[1], Spent { calls: 2, total_ns: 15, own_ns: 15 });
        assert_eq!(outermost, 90);
        // A missed return inside: its time is the caller's own.
        let missed = [event(0, false, 0), event(1, false, 10), event(0, true, 50)];
        assert_eq!(spent(&missed, 2).0[0].own_ns, 50);
        // Clocks that go back and functions out of range are no panic.
        spent(&[event(7, false, 9), event(7, true, 1)], 2);
    }

    #[test]
    fn without_kprobes_it_says_so() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Session::start_at(root.path(), &["x"]).unwrap_err(), TraceError::NoKprobes);
    }

    /// Files in place of tracefs: what is written where, and that all of it is taken back.
    #[test]
    fn a_session_removes_what_it_made() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("kprobe_events"), "p:theirs/x y\n").unwrap();
        fs::create_dir(root.path().join("instances")).unwrap();
        // Without the files that the kernel would make, no function can be probed.
        let error = Session::start_at(root.path(), &["ib_umem_get", "a b"]).unwrap_err();
        assert_eq!(error, TraceError::NothingProbed);
        assert_eq!(fs::read_dir(root.path().join("instances")).unwrap().count(), 0);
        let lines = fs::read_to_string(root.path().join("kprobe_events")).unwrap();
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines[0], "p:theirs/x y");
        assert!(lines[1].starts_with("p:mkey_") && lines[1].ends_with("/p0 ib_umem_get"));
        assert!(lines[2].starts_with("-:mkey_") && lines[2].ends_with("/p0"), "{lines:?}");
        assert_eq!(lines.len(), 3, "{lines:?}");
    }

    #[test]
    fn absent_functions_are_told_from_refused_ones() {
        let refused = |function| Refused { function, absent: false, why: "refused".to_owned() };
        let mut both = [refused(0), refused(1)];
        explain(&mut both, &["pin_user_pages_fast", "no_such_function_anywhere"]);
        assert!(!both[0].absent && both[0].why == "refused", "{both:?}");
        assert!(both[1].absent && both[1].why.contains("no such function"), "{both:?}");
    }

    #[test]
    fn mends_are_told() {
        assert!(TraceError::NotMounted.mend().unwrap().contains("mount -t tracefs"));
        assert_eq!(TraceError::NoKprobes.mend(), None);
    }
}
