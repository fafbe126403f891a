//! An echo over RDMA, with async tasks: many connections, few buffers, one thread.
//!
//! Completions and buffers are awaited like anything else; the library brings no runtime of its own
//! and works with any. Four clients share a pool of two reply buffers: who finds none waits in turn,
//! and is woken when one comes back.
//!
//! Both ends are in this process, on the software RNIC, or on the device that
//! `MKEY_DEVICE` names: `cargo run --example async_echo`

use anyhow::{Result, ensure};
use mkey::{
    Cq, Device, Mr, Pd, Pool, PoolOptions, Qp, Recv, Region, Slice, SoftOptions, WcOpcode, Work,
};
use tokio::task::JoinSet;

const CLIENTS: u32 = 4;
const MESSAGES: u32 = 100;
const SIZE: usize = 4096;

/// One end of a connection, with a buffer in which messages land and a receive posted for the first.
struct End {
    qp: Qp,
    cq: Cq,
    inbox: Slice,
}

impl End {
    fn new(pd: &Pd) -> Result<Self> {
        let cq = Cq::new(pd.device(), 16)?;
        let qp = Qp::builder(pd, &cq).create()?;
        let inbox = Mr::new(pd, Region::new(SIZE)?)?.into_slice();
        Ok(Self { qp, cq, inbox })
    }

    fn connect(&self, peer: &End) -> Result<()> {
        self.qp.connect(&peer.qp.endpoint())?;
        Ok(self.qp.post_recv(&[Recv::new(&self.inbox)])?)
    }
}

/// Sends back what comes, until an empty message says that it was the last; how many that were.
async fn serve(end: End, pool: Pool) -> Result<u32> {
    let mut served = 0;
    loop {
        let received = end.cq.next_async().await?.succeeded()?;
        let message = end.inbox.part(..received.byte_len as usize)?;
        if message.is_empty() {
            return Ok(served);
        }
        // Waits, in turn, while the other connections have all buffers.
        let reply = pool.alloc_async(message.len()).await?;
        reply.copy_from(&message)?;
        // In place of the work on a request: the other tasks run.
        tokio::task::yield_now().await;
        end.qp.post_recv(&[Recv::new(&end.inbox)])?;
        end.qp.post(&[Work::send(&reply)])?;
        // The posted work holds the buffer now. It goes back when the completion is polled.
        drop(reply);
        let sent = end.cq.next_async().await?.succeeded()?;
        ensure!(sent.opcode == WcOpcode::Send, "the client sent before it had its answer");
        served += 1;
    }
}

/// Sends messages and checks that each comes back.
async fn call(end: End, name: u32) -> Result<()> {
    for number in 0..MESSAGES {
        let message = format!("message {number} of client {name}");
        end.qp.post(&[Work::send_inline(message.as_bytes()).unsignaled()])?;
        let answer = end.cq.next_async().await?.succeeded()?;
        let answer = end.inbox.part(..answer.byte_len as usize)?.to_vec()?;
        ensure!(answer == message.as_bytes(), "{:?} came back", String::from_utf8_lossy(&answer));
        end.qp.post_recv(&[Recv::new(&end.inbox)])?;
    }
    end.qp.post(&[Work::send_inline(b"")])?;
    end.cq.next_async().await?.succeeded()?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<()> {
    let device = match std::env::var("MKEY_DEVICE") {
        Ok(name) => Device::open(&name)?,
        Err(_) => Device::soft(SoftOptions::default())?,
    };
    let (server, clients) = (Pd::new(&device)?, Pd::new(&device)?);
    // Room for two replies, and no more.
    let pool = Pool::new(&server, &PoolOptions::default().slab(2 * SIZE).ceiling(2 * SIZE))?;
    let mut servers = JoinSet::new();
    let mut calls = JoinSet::new();
    for name in 0..CLIENTS {
        let (near, far) = (End::new(&clients)?, End::new(&server)?);
        far.connect(&near)?;
        near.connect(&far)?;
        servers.spawn(serve(far, pool.clone()));
        calls.spawn(call(near, name));
    }
    while let Some(called) = calls.join_next().await {
        called??;
    }
    let mut served = 0;
    while let Some(server) = servers.join_next().await {
        served += server??;
    }
    let stats = pool.stats();
    println!("{served} messages of {CLIENTS} clients came back");
    let most = stats.high_water_bytes / SIZE as u64;
    println!("{most} reply buffers at most, {} waits", stats.waits);
    Ok(())
}
