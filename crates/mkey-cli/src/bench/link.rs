//! Two connected queue pairs of one process: a peer that writes, and the application whose memory
//! is written.
//!
//! An I/O is an RDMA WRITE by the peer, from a small buffer of its own that stays in the cache,
//! into the application's memory.

use super::arena::{Arena, Registration};
use super::error::{Result, RowError};
use mkey_core::address::IoAddr;
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair};
use mkey_core::device::{AhAttr, CqHandle, Device, PdHandle, QpHandle, RefusedBy};
use mkey_core::key::Key;
use mkey_core::queue_pair::{QpInit, QpKind, QpModify};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus;
use mkey_core::work::{Completion, Payload, RemoteAddr, SendFlags, SendOp, SendWr, Sge};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The most work requests in one chain.
pub const MOST: usize = 8;

/// How long a completion may take before something is wrong.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two connected queue pairs. Fields are dropped, and so freed, from the top.
#[derive(Debug)]
pub struct Link<'a, D: DataPlane> {
    device: &'a D,
    source: Option<Registration<'a, D, &'a Arena>>,
    source_at: IoAddr,
    peer: Side<'a, D>,
    application: Side<'a, D>,
    /// The protection domain of everything here.
    pub pd: PdHandle,
    _pd: Held<'a, D>,
}

/// A queue pair with its completion queue.
struct Side<'a, D: DataPlane> {
    qp: D::Qp,
    cq: D::Cq,
    qp_handle: QpHandle,
    _qp: Held<'a, D>,
    _cq: Held<'a, D>,
}

impl<D: DataPlane> std::fmt::Debug for Side<'_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Side").field("qp_num", &self.qp.qp_num()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Object {
    Pd(PdHandle),
    Cq(CqHandle),
    Qp(QpHandle),
}

/// An object of a device, freed when dropped.
#[derive(Debug)]
struct Held<'a, D: Device> {
    device: &'a D,
    object: Object,
}

impl<D: Device> Drop for Held<'_, D> {
    fn drop(&mut self) {
        // The device goes with the process; what it refuses to free now has no user left.
        let _ = match self.object {
            Object::Pd(pd) => self.device.dealloc_pd(pd),
            Object::Cq(cq) => self.device.destroy_cq(cq),
            Object::Qp(qp) => self.device.destroy_qp(qp),
        };
    }
}

/// Memory that the peer may write.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// First byte and key.
    pub remote: RemoteAddr,
    /// Bytes.
    pub length: u32,
}

/// Whether queue pairs connect where the port says that it is down.
///
/// # Errors
/// `PortDown`, with what brings it up.
pub fn check_port<D: DataPlane>(device: &D, source: &Arena) -> Result<()> {
    if device.port().active {
        return Ok(());
    }
    judge_port(device.name(), Link::connect(device, source).map(drop))
}

/// What a connection over a port that says it is down came to. A port may be up in fact, and what
/// else fails is told by each row.
///
/// # Errors
/// `PortDown` if it was the connecting that failed.
pub fn judge_port(device: &str, connected: Result<()>) -> Result<()> {
    match connected {
        Err(RowError::Verb(error)) if error.verb == "modify_qp" => {
            let why = std::io::Error::from_raw_os_error(error.errno()).to_string();
            let mend = match interface(Path::new("/sys/class/infiniband"), device) {
                Some(interface) => format!("sudo ip link set {interface} up"),
                None => "bring its link up (InfiniBand: cable, switch and subnet manager)".into(),
            };
            Err(RowError::PortDown { device: device.to_owned(), why, mend })
        }
        _ => Ok(()),
    }
}

/// The network interface of a device: soft-RoCE names its own, a card has it beside.
fn interface(devices: &Path, device: &str) -> Option<String> {
    let folder = devices.join(device);
    if let Ok(parent) = fs::read_to_string(folder.join("parent")) {
        return Some(parent.trim().to_owned()).filter(|name| !name.is_empty());
    }
    let first = fs::read_dir(folder.join("device/net")).ok()?.flatten().next()?;
    first.file_name().into_string().ok()
}

impl<'a, D: DataPlane> Link<'a, D> {
    /// Connects two queue pairs; the peer writes from `source`, all of which is registered.
    ///
    /// # Errors
    /// As the device refuses.
    pub fn connect(device: &'a D, source: &'a Arena) -> Result<Self> {
        let pd = device.alloc_pd()?;
        let held_pd = Held { device, object: Object::Pd(pd) };
        let mut link = Self {
            device,
            source: None,
            source_at: IoAddr(source.at(0).0),
            peer: Self::side(device, pd)?,
            application: Self::side(device, pd)?,
            pd,
            _pd: held_pd,
        };
        link.to_rts(link.peer.qp_handle, link.application.qp.qp_num())?;
        link.to_rts(link.application.qp_handle, link.peer.qp.qp_num())?;
        link.source = Some(source.register(device, pd, 0, source.bytes(), Rights::empty())?);
        Ok(link)
    }

    fn side(device: &'a D, pd: PdHandle) -> Result<Side<'a, D>> {
        let cq_handle = device.create_cq(4 * MOST as u32, None)?;
        let held_cq = Held { device, object: Object::Cq(cq_handle) };
        let init = QpInit { max_send_wr: 2 * MOST as u32, ..QpInit::new(QpKind::Rc, cq_handle) };
        let qp_handle = device.create_qp(pd, &init)?.handle;
        let held_qp = Held { device, object: Object::Qp(qp_handle) };
        let (qp, cq) = (device.qp(qp_handle)?, device.cq(cq_handle)?);
        Ok(Side { qp, cq, qp_handle, _qp: held_qp, _cq: held_cq })
    }

    fn to_rts(&self, qp: QpHandle, dest_qp_num: u32) -> Result<()> {
        let port = self.device.port();
        let (gid, gid_index) = (port.gid, port.gid_index);
        let ah = AhAttr { gid, gid_index, port: 1, traffic_class: 0, hop_limit: 64 };
        let steps = [
            QpModify::init(Rights::REMOTE_WRITE),
            QpModify::rtr(ah, dest_qp_num, port.active_mtu.clamp(256, 4096), 0),
            QpModify::rts(0),
        ];
        for step in &steps {
            self.device.modify_qp(qp, step)?;
        }
        Ok(())
    }

    /// The device.
    pub fn device(&self) -> &'a D {
        self.device
    }

    /// The peer writes into each target, in one chain, and the last one's completion is polled.
    ///
    /// # Errors
    /// As posting or the work fails.
    #[inline]
    pub fn write(&self, targets: &[Target]) -> Result<()> {
        let Some(source) = &self.source else { return Ok(()) };
        if let [target] = targets {
            let sge =
                [Sge { address: self.source_at, length: target.length, lkey: source.info.lkey }];
            return post_one(self.device, &self.peer, SendOp::Write(target.remote), &sge);
        }
        let mut sges = [[Sge::default()]; MOST];
        for (sge, target) in sges.iter_mut().zip(targets) {
            *sge = [Sge { address: self.source_at, length: target.length, lkey: source.info.lkey }];
        }
        let ops = targets.iter().zip(&sges).map(|(t, sge)| (SendOp::Write(t.remote), &sge[..]));
        post_and_wait(self.device, &self.peer, ops, targets.len())
    }

    /// The application posts work without data, in one chain, and polls the last completion.
    ///
    /// # Errors
    /// As posting or the work fails.
    #[inline]
    pub fn manage<'w>(&self, ops: &[SendOp<'w>]) -> Result<()> {
        if let [op] = ops {
            return post_one(self.device, &self.application, *op, &[]);
        }
        let work = ops.iter().map(|op| (*op, &[][..]));
        post_and_wait(self.device, &self.application, work, ops.len())
    }
}

/// Posts one work request and polls its completion.
#[inline]
fn post_one<D: DataPlane>(
    device: &D,
    side: &Side<'_, D>,
    op: SendOp<'_>,
    sges: &[Sge],
) -> Result<()> {
    side.qp.post_send(&[SendWr::new(1, op, sges)])?;
    wait(device, &side.cq, 1)
}

/// Posts a chain of which only the last makes a completion when all goes well, and polls for it.
#[inline]
fn post_and_wait<'w, D: DataPlane>(
    device: &D,
    side: &Side<'_, D>,
    work: impl Iterator<Item = (SendOp<'w>, &'w [Sge])>,
    count: usize,
) -> Result<()> {
    let nothing = SendWr {
        wr_id: 0,
        op: SendOp::LocalInv(Key(0)),
        payload: Payload::Sges(&[]),
        flags: SendFlags::empty(),
        dest: None,
        srq: None,
    };
    let mut chain = [nothing; MOST];
    let mut filled = 0;
    for (slot, (op, sges)) in chain.iter_mut().zip(work) {
        filled += 1;
        *slot = SendWr::new(filled as u64, op, sges);
        if filled < count {
            *slot = slot.unsignaled();
        }
    }
    let Some(chain) = chain.get(..filled).filter(|chain| !chain.is_empty()) else { return Ok(()) };
    side.qp.post_send(chain)?;
    wait(device, &side.cq, filled as u64)
}

/// Polls until the work request `last` is done.
#[inline]
fn wait<D: DataPlane>(device: &D, cq: &D::Cq, last: u64) -> Result<()> {
    let mut completions = [Completion::BLANK; 4];
    let mut since = None;
    loop {
        for _ in 0..1024 {
            let taken = cq.poll(&mut completions)?;
            for completion in completions.iter().take(taken) {
                if completion.status != WcStatus::Success {
                    return Err(failed(device, completion));
                }
                if completion.wr_id == last {
                    return Ok(());
                }
            }
        }
        let since = since.get_or_insert_with(Instant::now);
        if since.elapsed() > PATIENCE {
            return Err(RowError::NoCompletion(PATIENCE.as_secs()));
        }
        std::thread::yield_now();
    }
}

#[cold]
fn failed<D: Device>(device: &D, completion: &Completion) -> RowError {
    let log = device.refusals().unwrap_or_default();
    let reason =
        log.iter().find(|report| report.number == completion.vendor_err).map(|report| match report
            .refusal
        {
            RefusedBy::Access(why) => format!("{}: {why}", report.request),
            RefusedBy::Manage(why) => format!("{}: {why}", report.request),
            other => format!("{}: {other:?}", report.request),
        });
    RowError::Work { opcode: completion.opcode, status: completion.status, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mkey_core::error::{Error, Reason};

    fn refused(verb: &'static str) -> Result<()> {
        let reason = Reason::System { call: verb, errno: 101 };
        Err(RowError::Verb(Error::new(verb, "", reason)))
    }

    #[test]
    fn only_a_connection_that_fails_shows_that_the_port_is_down() {
        let down = judge_port("none0", refused("modify_qp")).unwrap_err();
        assert!(down.is_failure());
        let said = down.to_string();
        assert!(said.starts_with("the port of none0 is down (Network is unreachable"), "{said}");
        assert!(judge_port("none0", refused("reg_mr")).is_ok());
        assert!(judge_port("none0", Ok(())).is_ok());
    }

    #[test]
    fn the_interface_of_a_device_is_its_parent_or_beside_it() {
        let devices = tempfile::tempdir().unwrap();
        let (soft, card) = (devices.path().join("rxe0"), devices.path().join("mlx5_0"));
        fs::create_dir_all(&soft).unwrap();
        fs::write(soft.join("parent"), "eth0\n").unwrap();
        fs::create_dir_all(card.join("device/net/ens1")).unwrap();
        assert_eq!(interface(devices.path(), "rxe0").as_deref(), Some("eth0"));
        assert_eq!(interface(devices.path(), "mlx5_0").as_deref(), Some("ens1"));
        assert_eq!(interface(devices.path(), "none0"), None);
    }
}
