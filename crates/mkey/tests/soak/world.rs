//! What all threads share.

use crate::ledger::Ledger;
use mkey::testing::{Call, Faults, LeakCheck, When};
use mkey::{
    Access, Cache, Device, FastMrPool, GrantOptions, Grants, Invalidation, PageKind, Pd, Pool,
    PoolOptions, Reason, SoftOptions, Stale, WcOpcode,
};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const KIB: usize = 1 << 10;

/// One device, two protection domains on it, and what lies in them.
pub struct World {
    pub seed: u64,
    pub stop: AtomicBool,
    failures: Mutex<Vec<String>>,
    pub ledger: Ledger,
    pub counts: Counts,
    pub faults: Faults,
    pub leaks: LeakCheck,
    pub device: Device,
    /// Of the servers.
    pub pd: Pd,
    pub pool: Pool,
    pub grants: Grants,
    pub fast: FastMrPool,
    pub cache: Cache,
    /// Of the clients.
    pub client_pd: Pd,
    pub client_pool: Pool,
}

impl World {
    pub fn new(seed: u64) -> Self {
        // As a NIC does: a stale registration is not refused but reads what was there before.
        let options = SoftOptions { seed: Some(seed), stale: Stale::Nic, ..SoftOptions::default() };
        let base = Device::soft(options).expect("a software RNIC");
        let faults = Faults::new(seed);
        let device = faults.around(&base);
        let leaks = LeakCheck::of_process(&device);
        let (pd, client_pd) = (Pd::new(&device).expect("pd"), Pd::new(&device).expect("pd"));
        // Small, so that blocks change hands quickly, and pools are full now and then.
        let pool = |pd: &Pd, access: Access| {
            let options = PoolOptions::default().slab(64 * KIB).ceiling(256 * KIB).min_block(256);
            let options = options.resting(16 * KIB).pages(PageKind::Base).access(access);
            Pool::new(pd, &options).expect("a pool")
        };
        let server_pool = pool(&pd, Access::local().windows());
        let client_pool = pool(&client_pd, Access::local());
        let grants = pd.set_grants(GrantOptions::default().max(16)).expect("grants");
        let fast = FastMrPool::builder(&pd).entries(4).max(8).build().expect("a pool");
        let cache = |invalidation| {
            // Room for about half of what is asked for.
            Cache::builder(&pd).invalidation(invalidation).max_bytes(96 * KIB as u64).build()
        };
        let cache = cache(Invalidation::Events).or_else(|_| cache(Invalidation::Explicit));
        let cache = cache.expect("a cache");
        rules(&faults);
        Self {
            seed,
            stop: AtomicBool::new(false),
            failures: Mutex::default(),
            ledger: Ledger::default(),
            counts: Counts::default(),
            faults,
            leaks,
            device,
            pd,
            pool: server_pool,
            grants,
            fast,
            cache,
            client_pd,
            client_pool,
        }
    }

    /// Something is wrong: everybody stops.
    pub fn fail(&self, what: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(what);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it was well.
    pub fn check(&self, result: Result<(), String>) {
        if let Err(what) = result {
            self.fail(what);
        }
    }

    pub fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What goes wrong by itself.
fn rules(faults: &Faults) {
    let no_memory = |call, times| {
        let reason = Reason::System { call: "ioctl", errno: 12 };
        faults.refuse(call, reason, When::Chance(1.0 / times));
    };
    no_memory(Call::RegMr, 10.0);
    no_memory(Call::AllocMw, 20.0);
    no_memory(Call::AllocFastMr, 20.0);
    no_memory(Call::CreateQp, 30.0);
    no_memory(Call::ModifyQp, 100.0);
    no_memory(Call::PostSend, 1000.0);
    no_memory(Call::PostRecv, 1000.0);
    for (what, times) in [(WcOpcode::BindMw, 500.0), (WcOpcode::RegMr, 500.0)] {
        faults.fail(what, When::Chance(1.0 / times));
    }
    faults.fail(WcOpcode::LocalInv, When::Chance(1.0 / 1000.0));
    faults.fail(WcOpcode::RdmaWrite, When::Chance(1.0 / 5000.0));
    faults.break_qp(None, When::Chance(1.0 / 3000.0));
    faults.delay(WcOpcode::LocalInv, Duration::from_millis(2), When::Chance(1.0 / 200.0));
    faults.delay(WcOpcode::Recv, Duration::from_millis(2), When::Chance(1.0 / 1000.0));
    for what in [WcOpcode::LocalInv, WcOpcode::RdmaWrite, WcOpcode::RdmaRead, WcOpcode::Send] {
        faults.lose(what, When::Chance(1.0 / 500.0));
    }
}

macro_rules! counts {
    ($($name:ident = $words:literal;)*) => {
        /// What happened, by kind.
        #[derive(Default)]
        pub struct Counts { $(pub $name: Count,)* }

        impl Counts {
            fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$(($words, self.$name.get()),)*]
            }
        }
    };
}

counts! {
    blocks = "blocks taken from a pool";
    blocks_checked = "blocks found as their owner left them";
    blocks_none = "times that a pool had none";
    blocks_waited = "waits for a block";
    prepared_dropped = "grants prepared and dropped";
    granted = "grants posted";
    granted_of_cache = "grants of foreign memory";
    mapped = "fast mappings posted";
    not_prepared = "grants and mappings refused, or windows used up";
    not_posted = "posts refused";
    revoked = "ended by this side";
    by_peer = "ended by the peer";
    lost = "ended by the device freeing them";
    abandoned = "abandoned after a time";
    dropped_live = "dropped in flight, with their blocks";
    sent_dropped = "messages from blocks dropped when posted";
    sent_foreign = "messages from foreign memory, by the cache";
    sent_mapped = "messages from a fast mapping";
    remapped = "foreign mappings put in the place of another";
    cache_refused = "cache requests refused";
    received = "messages found right";
    received_dropped = "receives into blocks dropped when posted";
    writes = "writes by a key";
    reads = "reads by a key found right";
    reads_dropped = "reads into blocks dropped when posted";
    used_late = "uses of a key whose end was reported";
    refused_late = "of these, refused";
    used_wrong = "uses beyond a grant's range or rights";
    refused_wrong = "of these, refused";
    done = "grants that the client was done with";
    invalidated = "of these, ended by its SEND_WITH_INV";
    silent = "grants that the client let be";
    slow = "times that a client received nothing for a while";
    failed = "queue pairs put into ERR";
    stalled = "connections given up as nothing came";
    connected = "connections";
    destroyed = "of these, on a new queue pair";
    registered = "regions registered and ended apart";
    not_ended = "of these, those that the device would not end at once";
}

#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counts {
    /// What has never happened.
    pub fn idle(&self) -> Vec<&'static str> {
        self.all().into_iter().filter(|(_, count)| *count == 0).map(|(words, _)| words).collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.all().into_iter().map(|(words, count)| format!("{count:>12} {words}"));
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}
