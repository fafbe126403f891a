//! A storage target that gives a client access to one buffer, for one request.
//!
//! ```text
//! client                              target
//!   request: read or write, block --->  takes a buffer from the pool
//!                                 <---  grants it: binds a window to it and sends its key, in one post
//!   RDMA READ or WRITE, by the key      (the device checks it against the window)
//!   done                          --->  revokes; the buffer is used only after that is confirmed
//!                                 <---  the request is complete
//! ```
//!
//! The pool is registered once, so no request registers anything. The key opens this buffer, to
//! this client, until the request is over: a client that comes late is refused.
//!
//! Both ends run in this process, on the software RNIC, or on the device that
//! `MKEY_DEVICE` names: `cargo run --example storage_target`

use anyhow::{Context, Result, bail, ensure};
use mkey::{
    Access, Cq, Device, Ended, Mr, Pd, PeerAccess, Pool, PoolOptions, Qp, Recv, Region, RemoteKey,
    Slice, SoftOptions, WcStatus, Work,
};
use std::thread;
use std::time::Duration;

const BLOCK: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(10);
const READ: u8 = 0;
const WRITE: u8 = 1;
const DONE: u8 = 2;

/// One end of the connection: a queue pair, and a buffer in which the peer's next message lands.
struct End {
    qp: Qp,
    cq: Cq,
    pd: Pd,
    inbox: Slice,
}

impl End {
    fn new(device: &Device) -> Result<Self> {
        // One protection domain for each peer: no key of one is of any use to another.
        let pd = Pd::new(device)?;
        let cq = Cq::new(device, 64)?;
        let qp = Qp::builder(&pd, &cq).create()?;
        let inbox = Mr::new(&pd, Region::new(BLOCK)?)?.into_slice();
        Ok(Self { qp, cq, pd, inbox })
    }

    fn connect(&self, peer: &End) -> Result<()> {
        self.qp.connect(&peer.qp.endpoint())?;
        // A receive is posted before the peer may send.
        Ok(self.qp.post_recv(&[Recv::new(&self.inbox)])?)
    }

    /// A message that is copied when it is posted, so that it needs no registered memory.
    fn send(&self, message: &[u8]) -> Result<()> {
        Ok(self.qp.post(&[Work::send_inline(message).unsignaled()])?)
    }

    /// The peer's next message; `None` once the connection is gone.
    fn receive(&self) -> Result<Option<[u8; RemoteKey::BYTES]>> {
        let done = self.cq.next(PATIENCE)?.context("the peer is silent")?;
        if done.status == WcStatus::WrFlushErr {
            return Ok(None);
        }
        done.succeeded()?;
        let message = self.inbox.read_array(0)?;
        self.qp.post_recv(&[Recv::new(&self.inbox)])?;
        Ok(Some(message))
    }
}

/// The target: serves requests for blocks of `disk` until the client is gone.
fn serve(end: &End, disk: &mut [[u8; BLOCK]]) -> Result<String> {
    // Registered here, once. The client gets no rights by that: windows may be bound to it.
    let access = Access::local().windows();
    let pool = Pool::new(&end.pd, &PoolOptions::default().slab(4 << 20).access(access))?;
    let device = end.pd.device();
    let registered = device.stats().registrations;
    let mut requests = 0;
    while let Some([op, number, ..]) = end.receive()? {
        let block = disk.get_mut(usize::from(number)).context("no such block")?;
        let buffer = pool.alloc(BLOCK)?;
        let access = if op == WRITE { PeerAccess::WRITE } else { PeerAccess::READ };
        if op == READ {
            buffer.write(0, block)?;
        }
        let grant = buffer.prepare_grant(&end.qp, access)?;
        let key = grant.remote_key().to_bytes();
        // One post: the window is bound before the message with its key leaves.
        end.qp.post(&[grant.bind(), Work::send_inline(&key).unsignaled()])?;
        // If `?` leaves here: a grant that is dropped is revoked, and its buffer goes back to the
        // pool only when the client can reach it no more.
        let [DONE, ..] = end.receive()?.context("the client left in the middle")? else {
            bail!("the client broke the protocol");
        };
        let ended =
            grant.revoke().wait_polling(&end.cq, PATIENCE, |other| eprintln!("{other:?}"))?;
        ensure!(ended == Ended::Revoked, "the window had to be dropped: {ended:?}");
        if op == WRITE {
            buffer.read(0, block)?;
        }
        end.send(&[DONE])?;
        requests += 1;
    }
    let (stats, more) = (end.pd.grants()?.stats(), device.stats().registrations - registered);
    let (bound, live) = (stats.binds, stats.in_use);
    Ok(format!("{requests} requests, {bound} grants, {live} live, {more} registrations meanwhile"))
}

/// The client's side of one request, which moves `buffer` to or from a block; the key it was given.
fn request(end: &End, op: u8, number: u8, buffer: &Slice) -> Result<RemoteKey> {
    end.send(&[op, number])?;
    let key = RemoteKey::from_bytes(&end.receive()?.context("the target is gone")?);
    let work = if op == WRITE { Work::write(buffer, key) } else { Work::read(buffer, key) };
    end.qp.post(&[work])?;
    end.cq.next(PATIENCE)?.context("the transfer hangs")?.succeeded()?;
    end.send(&[DONE])?;
    end.receive()?.context("the target is gone")?;
    Ok(key)
}

pub(crate) fn main() -> Result<()> {
    let device = match std::env::var("MKEY_DEVICE") {
        Ok(name) => Device::open(&name)?,
        Err(_) => Device::soft(SoftOptions::default())?,
    };
    let (client, target) = (End::new(&device)?, End::new(&device)?);
    target.connect(&client)?;
    client.connect(&target)?;
    let buffer = Mr::new(&client.pd, Region::new(BLOCK)?)?.into_slice();
    let serving = thread::spawn(move || {
        serve(&target, &mut [[0; BLOCK]; 16]).inspect_err(|error| eprintln!("target: {error:#}"))
    });
    let text = b"written by RDMA, into a buffer granted for that";
    buffer.write(0, text)?;
    let key = request(&client, WRITE, 7, &buffer)?;
    println!("wrote block 7: {key}");
    buffer.write(0, &[0; BLOCK])?;
    let key = request(&client, READ, 7, &buffer)?;
    let back = buffer.part(..text.len())?.to_vec()?;
    println!("read  block 7: {key}: {:?}", String::from_utf8_lossy(&back));

    // The request is over. Who kept the key reaches nothing by it, and the device says why.
    client.qp.post(&[Work::read(&buffer, key)])?;
    let late = client.cq.next(PATIENCE)?.context("no completion")?;
    ensure!(late.status == WcStatus::RemAccessErr, "the stale key was good: {late:?}");
    println!("late read: {}: {}", late.status, device.explain(&late).unwrap_or_default());
    let served = serving.join().map_err(|_| anyhow::anyhow!("the target panicked"))??;
    println!("target: {served}");
    Ok(())
}
