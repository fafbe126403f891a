//! A port's shared memory: its numbers, and the pairs that it belongs to.

use super::folder::{BLOCK_BITS, Block, Folder, SOCKET};
use super::greeting::{self, Doorbells, Met, Visitor, process_of};
use super::pair::Pair;
use super::segment::Segment;
use crate::core::generation;
use crate::driver::{Driver, Source, Token};
use crate::link::{Inbound, Link, Path};
use crate::not_inherited::NotInherited;
use crate::per_process::PerProcess;
use crate::sync::{lock, lock_or_leave};
use mkey_core::device::Gid;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

/// A port's shared memory, for all devices of the process that have this port.
#[derive(Debug)]
pub(crate) struct Endpoint {
    gid: Gid,
    folder: Arc<Folder>,
    blocks: RwLock<Blocks>,
    /// By the peer's port and block.
    known: RwLock<HashMap<(Gid, u32), Arc<Pair>>>,
    /// Those that packets are taken from. Its lock comes before those of queue pairs.
    pairs: Mutex<Vec<Arc<Pair>>>,
    /// Those that are to be added to them, which may be made with locks of queue pairs held.
    fresh: Mutex<Vec<Arc<Pair>>>,
    any_fresh: AtomicBool,
    /// Who has connected and said nothing yet.
    guests: Mutex<Vec<Arc<Guest>>>,
    listening: OnceLock<Listening>,
    /// Why peers can not connect, if it was tried in vain.
    deaf: Mutex<Option<io::Error>>,
    /// Nobody could be let in, so it is tried again after a while.
    puts_off: AtomicBool,
    born: u32,
    me: Weak<Endpoint>,
}

/// The blocks of numbers of this process.
#[derive(Debug)]
struct Blocks {
    all: Vec<Block>,
    /// Peers may connect by the numbers of each.
    reachable: bool,
}

/// Somebody who has connected and said nothing yet.
struct Guest {
    socket: Mutex<Option<OwnedFd>>,
    /// There was no descriptor left for what it hands over, so that is asked for again after a while.
    put_off: AtomicBool,
    /// What waits for what it says.
    waits: Option<(&'static Driver, Token)>,
    host: Weak<Endpoint>,
}

/// Where peers connect.
struct Listening {
    listener: NotInherited,
    driver: &'static Driver,
    token: Token,
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.listener.fmt(f)
    }
}

/// By port.
type Endpoints = HashMap<Gid, Weak<Endpoint>>;

impl Endpoint {
    /// The endpoint of a port, with a block of numbers.
    ///
    /// # Errors
    /// Those of making the folder, and if all blocks are taken.
    pub(crate) fn of(gid: Gid, wanted_block: u32) -> io::Result<Arc<Self>> {
        static ENDPOINTS: PerProcess<Mutex<Endpoints>> = PerProcess::new();
        let endpoints = ENDPOINTS.get_or_make(|| Some(Mutex::default()));
        let mut endpoints = lock(endpoints.ok_or(io::ErrorKind::OutOfMemory)?);
        endpoints.retain(|_, endpoint| endpoint.strong_count() > 0);
        if let Some(endpoint) = endpoints.get(&gid).and_then(Weak::upgrade) {
            return Ok(endpoint);
        }
        let endpoint = Self::new(gid, Folder::of(gid)?, wanted_block)?;
        endpoints.insert(gid, Arc::downgrade(&endpoint));
        Ok(endpoint)
    }

    fn new(gid: Gid, folder: Arc<Folder>, wanted_block: u32) -> io::Result<Arc<Self>> {
        folder.sweep();
        let block = folder.claim(wanted_block)?.ok_or(io::ErrorKind::QuotaExceeded)?;
        Ok(Arc::new_cyclic(|me| Self {
            gid,
            folder,
            blocks: RwLock::new(Blocks { all: vec![block], reachable: false }),
            known: RwLock::default(),
            pairs: Mutex::default(),
            fresh: Mutex::default(),
            any_fresh: AtomicBool::new(false),
            guests: Mutex::default(),
            listening: OnceLock::new(),
            deaf: Mutex::default(),
            puts_off: AtomicBool::new(false),
            born: generation(),
            me: me.clone(),
        }))
    }

    /// Whether a number at a port is of a process of this user and host.
    pub(crate) fn is_on_this_host(gid: Gid, qp_num: u32) -> bool {
        Folder::that_is(gid).is_ok_and(|folder| folder.is_taken(qp_num >> BLOCK_BITS))
    }

    /// A number of this process: which, `counter` tells. After so many `tries` that met numbers in
    /// use, one of another block.
    pub(crate) fn number(&self, counter: u32, tries: u32) -> Option<u32> {
        let within = counter % (1 << BLOCK_BITS);
        let number = |block: &Block| (block.number() << BLOCK_BITS) + within;
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        let count = blocks.all.len() as u32;
        if tries >> BLOCK_BITS < count {
            return blocks.all.get(((counter >> BLOCK_BITS) % count) as usize).map(number);
        }
        drop(blocks);
        self.another_block().ok()
    }

    fn another_block(&self) -> io::Result<u32> {
        let mut blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        let last = blocks.all.last().map_or(0, Block::number);
        let block = self.folder.claim(last)?.ok_or(io::ErrorKind::QuotaExceeded)?;
        let number = block.number() << BLOCK_BITS;
        if let Some(first) = blocks.all.first().filter(|_| blocks.reachable) {
            block.alias(first)?;
        }
        blocks.all.push(block);
        Ok(number)
    }

    /// Whether a number is of this process.
    pub(crate) fn owns(&self, qp_num: u32) -> bool {
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        blocks.all.iter().any(|block| block.number() == qp_num >> BLOCK_BITS)
    }

    /// Peers may connect from now on. If that is not possible now, it may be at the next call.
    pub(crate) fn open(&self, driver: &'static Driver) {
        if self.listening.get().is_none() {
            *lock(&self.deaf) = self.listen(driver).err();
        }
    }

    /// Why peers can not connect although they were to.
    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.deaf).as_ref().map(io::Error::to_string)
    }

    fn listen(&self, driver: &'static Driver) -> io::Result<()> {
        // Held until it is done: no block comes meanwhile that peers do not reach.
        let mut blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        if blocks.reachable {
            return Ok(());
        }
        let (first, others) = blocks.all.split_first().ok_or(io::ErrorKind::NotFound)?;
        let listener = first.listen()?;
        for block in others {
            block.alias(first)?;
        }
        let source: Weak<dyn Source> = self.me.clone();
        let token = driver.watch(&listener, source)?;
        let _ = self.listening.set(Listening { listener, driver, token });
        blocks.reachable = true;
        Ok(())
    }

    /// Connects to the process of a number.
    fn connect(&self, gid: Gid, qp_num: u32) -> io::Result<Arc<Pair>> {
        let block = qp_num >> BLOCK_BITS;
        let there = match gid == self.gid {
            true => self.folder.clone(),
            false => Folder::that_is(gid)?,
        };
        let socket = there.connect(block)?;
        let (segment, memory) = Segment::create().ok_or(io::ErrorKind::OutOfMemory)?;
        let doorbells = Doorbells::new()?;
        let own = {
            let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
            blocks.all.first().map_or(0, Block::number)
        };
        greeting::send(&socket, self.gid, own, &memory, &doorbells)?;
        let process = process_of(&socket);
        let pair = Pair::new(segment, socket, doorbells, process, self.gid, gid);
        self.add(&pair, gid, block);
        Ok(pair)
    }

    /// Whether a peer's process can be connected to.
    ///
    /// # Errors
    /// Those of connecting to it.
    pub(crate) fn try_to_connect(&self, gid: Gid, qp_num: u32) -> io::Result<()> {
        if gid == self.gid && self.owns(qp_num) {
            return Ok(());
        }
        // Nothing is handed over: it is let in and has gone.
        Folder::that_is(gid)?.connect(qp_num >> BLOCK_BITS).map(drop)
    }

    fn add(&self, pair: &Arc<Pair>, gid: Gid, block: u32) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, pair| !pair.is_dead());
        // If both sides have connected at once, there are two pairs: each side sends by the one
        // that it found first, and receives from both.
        known.entry((gid, block)).or_insert_with(|| pair.clone());
        drop(known);
        if let Some(Listening { driver, .. }) = self.listening.get() {
            pair.watch(driver);
        }
        lock(&self.fresh).push(pair.clone());
        self.any_fresh.store(true, Ordering::Release);
    }

    /// Passes a packet on that was meant for another process with this address.
    pub(crate) fn pass_on(&self, inbound: &Inbound<'_>) {
        let number = inbound.repr.fields.dest_qp.get();
        // Nobody sends it again soon, so it is worth a look whether the process is there still.
        let Some(path) = self.pair_to(self.gid, number, true) else { return };
        path.pass_on(inbound);
    }

    fn pair_to(&self, gid: Gid, qp_num: u32, lasting: bool) -> Option<Arc<Pair>> {
        let known = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            // The numbers of a process that has ended may be another one's by now.
            let lives = |pair: &&Arc<Pair>| !(pair.is_dead() || lasting && pair.has_hung_up());
            known.get(&(gid, qp_num >> BLOCK_BITS)).filter(lives).cloned()
        };
        // Where nobody is yet, somebody may be at the next try.
        known.or_else(|| self.connect(gid, qp_num).ok())
    }

    /// Lets those in who have connected: what they have to say may lie in their rings already.
    fn welcome(&self) {
        self.attend();
        let guests = lock(&self.guests).clone();
        for guest in guests {
            guest.attend();
        }
    }

    /// The pairs that packets are taken from.
    fn pairs(&self, wait: bool) -> Option<MutexGuard<'_, Vec<Arc<Pair>>>> {
        let mut pairs = lock_or_leave(&self.pairs, wait)?;
        if self.any_fresh.load(Ordering::Relaxed) && self.any_fresh.swap(false, Ordering::AcqRel) {
            pairs.append(&mut lock(&self.fresh));
        }
        Some(pairs)
    }
}

impl Link for Endpoint {
    fn path(&self, gid: Gid, qp_num: u32, lasting: bool) -> Option<Arc<dyn Path>> {
        if gid == self.gid && self.owns(qp_num) {
            return None;
        }
        Some(self.pair_to(gid, qp_num, lasting)?)
    }

    fn receive(&self, wait: bool, deliver: &mut dyn FnMut(&Inbound<'_>)) -> bool {
        if wait {
            self.welcome();
        }
        let Some(mut pairs) = self.pairs(wait) else { return false };
        let mut any = false;
        let before = pairs.len();
        // What a peer had sent before it ended is received still.
        pairs.retain(|pair| {
            let dead = pair.is_dead();
            let received = pair.receive(deliver);
            any |= received;
            !dead || received
        });
        if pairs.len() < before {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, pair| !pair.is_dead());
        }
        any
    }

    fn hang_bells(&self) -> bool {
        let Some(pairs) = self.pairs(true) else { return false };
        // All of them.
        pairs.iter().filter(|pair| pair.hang_bell()).count() > 0
    }

    fn take_bells_down(&self, program_polls: bool) {
        if let Some(pairs) = self.pairs(false) {
            pairs.iter().for_each(|pair| pair.take_bell_down(program_polls));
        }
    }
}

impl Source for Endpoint {
    fn attend(&self) {
        let Some(Listening { listener, driver, token }) = self.listening.get() else {
            return;
        };
        if self.puts_off.swap(false, Ordering::AcqRel) {
            driver.listen(listener, *token, true);
        }
        // Locked meanwhile: who asks for all guests gets those, too, that are just coming in.
        let mut guests = lock(&self.guests);
        loop {
            let socket = match rustix::net::accept_with(listener, SOCKET) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => break,
                // Who has hung up meanwhile.
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                // Mostly there is no descriptor left. Who waits goes on to do so, and would wake the
                // thread without end.
                Err(_) => {
                    self.puts_off.store(true, Ordering::Release);
                    driver.put_off(listener, *token);
                    break;
                }
            };
            let guest = Arc::new_cyclic(|me: &Weak<Guest>| Guest {
                waits: driver.watch(&socket, me.clone()).ok().map(|token| (*driver, token)),
                socket: Mutex::new(Some(socket)),
                put_off: AtomicBool::new(false),
                host: self.me.clone(),
            });
            guests.push(guest);
        }
    }
}

impl Source for Guest {
    fn attend(&self) {
        let Some(host) = self.host.upgrade() else { return };
        let mut place = lock(&self.socket);
        let Some(socket) = place.take() else { return };
        if let Some((driver, token)) = self.waits
            && self.put_off.swap(false, Ordering::Relaxed)
        {
            driver.listen(&socket, token, true);
        }
        let met = greeting::meet(&socket);
        if let Met::Silent | Met::NoRoom = met {
            // What it hands over goes on to wait, and would wake the thread without end.
            if let (Met::NoRoom, Some((driver, token))) = (&met, self.waits) {
                self.put_off.store(true, Ordering::Relaxed);
                driver.put_off(&socket, token);
            }
            *place = Some(socket);
            return;
        }
        if let Some((driver, token)) = self.waits {
            driver.forget(&socket, token);
        }
        if let Met::Visitor(Visitor { process, gid, block, memory, doorbells }) = met
            && let Some(segment) = Segment::open(memory)
        {
            let pair = Pair::new(segment, socket, doorbells, process, host.gid, gid);
            host.add(&pair, gid, block);
        }
        drop(place);
        lock(&host.guests).retain(|guest| lock(&guest.socket).is_some());
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let (Some((driver, token)), Some(socket)) = (self.waits, &*lock(&self.socket)) {
            driver.forget(socket, token);
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.born == generation()
            && let Some(Listening { listener, driver, token }) = self.listening.get()
        {
            driver.forget(listener, *token);
        }
    }
}

#[cfg(test)]
mod tests;
