//! C programs that do what is known, and what a recording of them has to say.

use mkey_trace::format::{Finding, Process, Recording, Region, Stack, Wrong};
use std::collections::BTreeMap;

const HEAD: &str = include_str!("../c/known.h");

const LOCAL_WRITE: u32 = 1;
const REMOTE_WRITE: u32 = 2;
const REMOTE_READ: u32 = 4;
const ALL: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ;

/// How much a program does of everything.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// Registered, written from and deregistered again and again: bytes, times.
    pub repeats: Vec<(u32, u32)>,
    /// Registered and deregistered, and never named by work: bytes.
    pub unused: Vec<u32>,
    /// Never deregistered: bytes.
    pub leaks: Vec<u32>,
    /// Regions beside each other in one mapping: how many, bytes of each.
    pub small: (u32, u32),
    /// Written from, read into and received into, so many times; and what a peer may besides.
    pub sent: u32,
    pub read: u32,
    pub received: u32,
    /// Registered with all rights, of which a peer uses REMOTE_WRITE: so many times.
    pub written: u32,
    /// Registered and then given back with `free`, and with `munmap`.
    pub freed: u32,
    pub unmapped: u32,
    /// Work that names a key whose region is gone.
    pub stale: u32,
    /// Deregistered with a receive in flight.
    pub in_flight: u32,
    /// Receives into memory that another receive has.
    pub twice: u32,
}

impl Pattern {
    pub fn random(seed: u64) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut sizes = |most: usize| -> Vec<u32> {
            (0..dice.usize(1..=most)).map(|_| dice.u32(1..200) * 512).collect()
        };
        let (repeats, unused, leaks) = (sizes(4), sizes(6), sizes(5));
        Self {
            repeats: repeats.into_iter().map(|size| (size, dice.u32(2..9))).collect(),
            unused,
            leaks,
            small: (dice.u32(8..30), dice.u32(1..8) * 256),
            sent: dice.u32(1..10),
            read: dice.u32(1..10),
            received: dice.u32(1..10),
            written: dice.u32(1..10),
            freed: dice.u32(1..4),
            unmapped: dice.u32(1..4),
            stale: 1,
            in_flight: dice.u32(1..4),
            twice: dice.u32(1..5),
        }
    }

    /// The program. Every kind of thing is done by a function of its own.
    pub fn source(&self) -> String {
        let mut text = HEAD.to_owned();
        text.push_str("#define NOT_INLINED __attribute__((noinline))\n");
        let mut calls = Vec::new();
        let mut function = |name: &str, body: &str| {
            text.push_str(&format!(
                "static NOT_INLINED void {name}(struct side sides[2], struct ibv_mr *far)\n{{\n\
                 \t(void)sides; (void)far;\n{body}\t/* No call is the last. */\n\t__asm__ volatile(\"\");\n}}\n"
            ));
            calls.push(format!("{name}(sides, far);"));
        };
        let mut body = String::new();
        for (size, times) in &self.repeats {
            body.push_str(&format!(
                "\t{{\n\t\tchar *memory = pages({size});\n\t\tfor (int i = 0; i < {times}; i++) {{\n\
                 \t\t\tstruct ibv_mr *mr = reg(memory, {size}, IBV_ACCESS_LOCAL_WRITE);\n\
                 \t\t\tCHECK(post_and_poll(&sides[0], IBV_WR_RDMA_WRITE, (uintptr_t)memory, 64, mr->lkey, far) == 0);\n\
                 \t\t\tCHECK(ibv_dereg_mr(mr) == 0);\n\t\t}}\n\t}}\n"
            ));
        }
        function("repeats", &body);
        let mut body = String::new();
        for size in &self.unused {
            body.push_str(&format!(
                "\tCHECK(ibv_dereg_mr(reg(pages({size}), {size}, IBV_ACCESS_LOCAL_WRITE)) == 0);\n"
            ));
        }
        function("unused", &body);
        let mut body = String::new();
        for size in &self.leaks {
            body.push_str(&format!("\treg(pages({size}), {size}, IBV_ACCESS_LOCAL_WRITE);\n"));
        }
        function("leaks", &body);
        let (count, size) = self.small;
        function(
            "small",
            &format!(
                "\tchar *memory = pages({count} * {size});\n\tstruct ibv_mr *mrs[{count}];\n\
                 \tfor (int i = 0; i < {count}; i++) {{\n\
                 \t\tmrs[i] = reg(memory + i * {size}, {size}, 0);\n\
                 \t\tCHECK(post_and_poll(&sides[0], IBV_WR_RDMA_WRITE, (uintptr_t)mrs[i]->addr, 8, mrs[i]->lkey, far) == 0);\n\
                 \t}}\n\tfor (int i = 0; i < {count}; i++)\n\t\tCHECK(ibv_dereg_mr(mrs[i]) == 0);\n"
            ),
        );
        let (sent, read, received, written) = (self.sent, self.read, self.received, self.written);
        function(
            "used",
            &format!(
                "\tchar *memory = pages(65536);\n\
                 \tstruct ibv_mr *from = reg(memory, 4096, 0), *into = reg(memory + 4096, 4096, IBV_ACCESS_LOCAL_WRITE);\n\
                 \tstruct ibv_mr *recv = reg(memory + 8192, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);\n\
                 \tstruct ibv_mr *each = reg(memory + 12288, 4096, EACH);\n\
                 \tfor (int i = 0; i < {received}; i++) {{\n\
                 \t\treceive_into(&sides[1], recv, (uintptr_t)recv->addr, 64);\n\
                 \t\tCHECK(post_and_poll(&sides[0], IBV_WR_SEND, (uintptr_t)from->addr, 64, from->lkey, NULL) == 0);\n\
                 \t\tCHECK(polled(sides[1].cq) == 0);\n\t}}\n\
                 \tfor (int i = 0; i < {sent}; i++)\n\
                 \t\tCHECK(post_and_poll(&sides[0], IBV_WR_RDMA_WRITE, (uintptr_t)from->addr, 64, from->lkey, far) == 0);\n\
                 \tfor (int i = 0; i < {read}; i++)\n\
                 \t\tCHECK(post_and_poll(&sides[0], IBV_WR_RDMA_READ, (uintptr_t)into->addr, 64, into->lkey, far) == 0);\n\
                 \tfor (int i = 0; i < {written}; i++)\n\
                 \t\tCHECK(post_and_poll(&sides[1], IBV_WR_RDMA_WRITE, (uintptr_t)from->addr, 64, from->lkey, each) == 0);\n\
                 \tCHECK(ibv_dereg_mr(from) == 0 && ibv_dereg_mr(into) == 0);\n\
                 \tCHECK(ibv_dereg_mr(recv) == 0 && ibv_dereg_mr(each) == 0);\n"
            ),
        );
        function(
            "freed",
            &format!(
                "\tfor (int i = 0; i < {}; i++) {{\n\t\tchar *block = malloc(300000);\n\
                 \t\tstruct ibv_mr *mr;\n\n\t\tCHECK(block);\n\t\tmemset(block, 1, 300000);\n\
                 \t\tmr = reg(block, 300000, IBV_ACCESS_LOCAL_WRITE);\n\t\tfree(block);\n\
                 \t\tCHECK(ibv_dereg_mr(mr) == 0);\n\t}}\n",
                self.freed
            ),
        );
        function(
            "unmapped",
            &format!(
                "\tfor (int i = 0; i < {}; i++) {{\n\t\tchar *memory = pages(16384);\n\
                 \t\tstruct ibv_mr *mr = reg(memory, 16384, IBV_ACCESS_LOCAL_WRITE);\n\n\
                 \t\tCHECK(munmap(memory, 16384) == 0);\n\
                 \t\tCHECK(ibv_dereg_mr(mr) == 0);\n\t}}\n",
                self.unmapped
            ),
        );
        // From here on each needs queue pairs of its own.
        function(
            "in_flight",
            &format!(
                "\tfor (int i = 0; i < {}; i++) {{\n\t\tstruct side own[2];\n\
                 \t\tchar *memory = pages(4096);\n\t\tstruct ibv_mr *mr;\n\n\t\tmake_sides(own);\n\
                 \t\tmr = reg(memory, 4096, IBV_ACCESS_LOCAL_WRITE);\n\
                 \t\treceive_into(&own[0], mr, (uintptr_t)memory, 64);\n\
                 \t\t/* Of a queue that completes nothing no claim is made on real devices. */\n\
                 \t\tCHECK(post_and_poll(&own[1], IBV_WR_SEND, (uintptr_t)far->addr, 64, far->lkey, NULL) == 0);\n\
                 \t\tCHECK(polled(own[0].cq) == 0);\n\
                 \t\treceive_into(&own[0], mr, (uintptr_t)memory, 64);\n\
                 \t\tCHECK(ibv_dereg_mr(mr) == 0);\n\t\tend_sides(own);\n\t}}\n",
                self.in_flight
            ),
        );
        function(
            "twice",
            &format!(
                "\tstruct side own[2];\n\tchar *memory = pages(4096);\n\
                 \tstruct ibv_mr *mr = reg(memory, 4096, IBV_ACCESS_LOCAL_WRITE);\n\n\
                 \tmake_sides(own);\n\
                 \tfor (int i = 0; i <= {}; i++)\n\
                 \t\treceive_into(&own[0], mr, (uintptr_t)memory, 64);\n\
                 \tend_sides(own);\n\tCHECK(ibv_dereg_mr(mr) == 0);\n",
                self.twice
            ),
        );
        function(
            "stale",
            &format!(
                "\tfor (int i = 0; i < {}; i++) {{\n\t\tstruct side own[2];\n\
                 \t\tchar *memory = pages(4096);\n\
                 \t\tstruct ibv_mr *mr = reg(memory, 4096, IBV_ACCESS_LOCAL_WRITE);\n\
                 \t\tuint32_t lkey = mr->lkey;\n\n\t\tmake_sides(own);\n\
                 \t\tCHECK(ibv_dereg_mr(mr) == 0);\n\
                 \t\tCHECK(post_and_poll(&own[0], IBV_WR_RDMA_WRITE, (uintptr_t)memory, 64, lkey, far) != 0);\n\
                 \t\tend_sides(own);\n\t}}\n",
                self.stale
            ),
        );
        text.push_str(&format!(
            "int main(void)\n{{\n\tstruct side sides[2];\n\tstruct ibv_mr *far;\n\n\
             \tcontext = open_first();\n\tCHECK((pd = ibv_alloc_pd(context)));\n\tmake_sides(sides);\n\
             \tfar = reg(pages(4096), 4096, EACH);\n\t{}\n\tend_sides(sides);\n\
             \tCHECK(ibv_dereg_mr(far) == 0);\n\tputs(\"done\");\n\treturn 0;\n}}\n",
            calls.join("\n\t")
        ));
        text
    }

    /// What a recording has to say, nothing left out and nothing more.
    pub fn check(&self, recording: &Recording) {
        let [process] = recording.processes.as_slice() else { panic!("{:?}", recording.processes) };
        let seen = Seen { recording };
        self.check_counts(&seen, process);
        self.check_uses(&seen);
        self.check_mistakes(&seen);
    }

    fn check_counts(&self, seen: &Seen<'_>, process: &Process) {
        assert!(process.exited && process.ended.is_some(), "{process:?}");
        assert_eq!(process.lost, 0);
        let repeats: u32 = self.repeats.iter().map(|(_, times)| times).sum();
        let regions = [
            ("repeats", repeats),
            ("unused", self.unused.len() as u32),
            ("leaks", self.leaks.len() as u32),
            ("small", self.small.0),
            ("used", 4),
            ("freed", self.freed),
            ("unmapped", self.unmapped),
            ("in_flight", self.in_flight),
            ("twice", 1),
            ("stale", self.stale),
            // `far`.
            ("main", 1),
        ];
        let expected: BTreeMap<_, _> =
            regions.iter().map(|(name, count)| (*name, *count)).collect();
        let mut found = BTreeMap::new();
        for region in &seen.recording.regions {
            *found.entry(seen.function(region.reg_stack)).or_insert(0) += 1;
        }
        assert_eq!(found, expected);
        let calls = |verb: &str| {
            seen.recording.calls.iter().filter(|call| call.verb == verb && call.errno == 0).count()
        };
        let all: u32 = regions.iter().map(|(_, count)| count).sum();
        assert_eq!(calls("ibv_reg_mr"), all as usize);
        assert_eq!(calls("ibv_dereg_mr"), all as usize - self.leaks.len());
        let pairs = 2 * (1 + self.in_flight + 1 + self.stale) as usize;
        assert_eq!((calls("ibv_create_qp"), calls("ibv_destroy_qp")), (pairs, pairs));
        assert_eq!((calls("ibv_create_cq"), calls("ibv_destroy_cq")), (pairs, pairs));
        assert_eq!((calls("ibv_open_device"), calls("ibv_alloc_pd")), (1, 1));
        for call in &seen.recording.calls {
            assert!(call.begin <= call.end && call.errno == 0, "{call:?}");
        }
    }

    fn check_uses(&self, seen: &Seen<'_>) {
        let uses = |region: &Region| {
            [region.sends, region.writes, region.reads, region.recvs, region.binds]
                .map(|n| n as u32)
        };
        for region in seen.of("repeats").chain(seen.of("small")) {
            assert_eq!(uses(region), [0, 1, 0, 0, 0], "{region:?}");
        }
        let expected: Vec<_> =
            self.repeats.iter().flat_map(|(size, times)| vec![*size; *times as usize]).collect();
        let sizes =
            |of| -> Vec<_> { seen.of(of).map(|region: &Region| region.len as u32).collect() };
        assert_eq!(sizes("repeats"), expected);
        let starts = |of| {
            let mut starts: Vec<_> = seen.of(of).map(|region| region.addr).collect();
            starts.dedup();
            starts.len()
        };
        assert_eq!(starts("repeats"), self.repeats.len(), "the same memory has the same address");
        assert_eq!(sizes("unused"), self.unused);
        assert_eq!(sizes("leaks"), self.leaks);
        for region in seen.of("unused").chain(seen.of("leaks")) {
            assert_eq!(uses(region), [0; 5], "{region:?}");
        }
        for region in &seen.recording.regions {
            let leaked = seen.function(region.reg_stack) == "leaks";
            assert_eq!(region.to.is_none(), leaked, "{region:?}");
        }
        let used: Vec<_> = seen.of("used").map(|region| (region.access, uses(region))).collect();
        let expected = [
            (0, [self.received, self.sent + self.written, 0, 0, 0]),
            (LOCAL_WRITE, [0, 0, self.read, 0, 0]),
            (LOCAL_WRITE | REMOTE_READ, [0, 0, 0, self.received, 0]),
            (ALL, [0; 5]),
        ];
        assert_eq!(used, expected);
        // What a peer may, and did: by the keys that requests named.
        let each = seen.of("used").nth(3).map(|region| region.id);
        let far = seen.of("main").next().map(|region| region.id);
        let mut remotes = BTreeMap::new();
        for remote in &seen.recording.remotes {
            remotes.insert(remote.region, (remote.writes, remote.reads, remote.atomics));
        }
        let repeats: u32 = self.repeats.iter().map(|(_, times)| times).sum();
        let far_writes = repeats + self.small.0 + self.sent + self.stale;
        let expected = BTreeMap::from([
            (each, (u64::from(self.written), 0, 0)),
            (far, (u64::from(far_writes), u64::from(self.read), 0)),
        ]);
        assert_eq!(remotes, expected);
    }

    fn check_mistakes(&self, seen: &Seen<'_>) {
        let mut found = BTreeMap::new();
        for finding in &seen.recording.findings {
            let place = seen.function(finding.stack);
            *found.entry((finding.wrong, place)).or_insert(0) += finding.times as u32;
            seen.has_both_stacks(finding);
        }
        let expected = BTreeMap::from([
            ((Wrong::FreedRegistered, "freed"), self.freed),
            ((Wrong::UnmappedRegistered, "unmapped"), self.unmapped),
            ((Wrong::DeregInFlight, "in_flight"), self.in_flight),
            ((Wrong::ReceivedTwice, "twice"), self.twice),
            ((Wrong::KeyAfterDereg, "stale"), self.stale),
        ]);
        assert_eq!(found, expected);
        let failures = &seen.recording.failures;
        assert_eq!(failures.iter().map(|failure| failure.times as u32).sum::<u32>(), self.stale);
        // IBV_WC_LOC_PROT_ERR; soft-RoCE says IBV_WC_LOC_QP_OP_ERR or IBV_WC_WR_FLUSH_ERR.
        assert!(failures.iter().all(|failure| [4, 2, 5].contains(&failure.status)), "{failures:?}");
    }
}

struct Seen<'r> {
    recording: &'r Recording,
}

impl<'r> Seen<'r> {
    /// The function of the pattern that a place in the program is in.
    fn function(&self, stack: u32) -> &'r str {
        let stack: &Stack = Recording::by_id(&self.recording.stacks, stack).unwrap();
        let functions = stack.frames.iter().filter_map(|frame| frame.function.as_deref());
        let helpers =
            ["reg", "receive_into", "post_and_poll", "make_sides", "end_sides", "make_qp"];
        let own = stack.frames.iter().filter(|frame| frame.module == "program");
        let own: Vec<_> = own.filter_map(|frame| frame.function.as_deref()).collect();
        assert!(own.contains(&"main"), "{:?}", functions.collect::<Vec<_>>());
        // libibverbs' inline functions begin with its letters, and with these.
        let inline = |name: &str| name.trim_start_matches('_').starts_with("ibv_");
        own.into_iter().find(|name| !helpers.contains(name) && !inline(name)).unwrap()
    }

    /// The regions that a function registered.
    fn of<'f>(&'f self, function: &'f str) -> impl Iterator<Item = &'r Region> + 'f {
        let regions = self.recording.regions.iter();
        regions.filter(move |region| self.function(region.reg_stack) == function)
    }

    fn has_both_stacks(&self, finding: &Finding) {
        assert_eq!(self.function(finding.stack), self.function(finding.before), "{finding:?}");
        assert!(finding.region.is_some(), "{finding:?}");
    }
}
