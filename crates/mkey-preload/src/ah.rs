//! Address handles and the headers they are made from.

use crate::boundary::{EINVAL, Verb};
use crate::context::Open;
use crate::gids;
use crate::objects::{Found, Kind, Object, Spares};
use crate::pd::Pd;
use mkey_core::device::{AhAttr, AhHandle, Device, Gid};
use mkey_sys::types::*;
use std::net::Ipv4Addr;

/// An address handle.
#[derive(Debug)]
pub(crate) struct Ah {
    pub(crate) handle: AhHandle,
}

static AHS: Spares<Ah> = Spares::new();

// SAFETY: `ibv_ah` begins with its context.
unsafe impl Kind for Ah {
    type Base = ibv_ah;

    fn spares() -> &'static Spares<Self> {
        &AHS
    }
}

/// An address as C gives it. On Ethernet there is none without a global route.
pub(crate) fn address(open: &Open, attr: &ibv_ah_attr) -> Verb<AhAttr> {
    let route = &attr.grh;
    if attr.is_global == 0 || attr.port_num != gids::PORT {
        return Err(EINVAL);
    }
    let own = gids::at(open, u32::from(route.sgid_index));
    if own.is_none_or(|own| own == Gid::default()) {
        return Err(EINVAL);
    }
    // SAFETY: all bytes of the union are its raw form.
    let gid = Gid(unsafe { route.dgid.raw });
    if gid == Gid::default() {
        return Err(EINVAL);
    }
    Ok(AhAttr {
        gid,
        gid_index: route.sgid_index,
        port: attr.port_num,
        traffic_class: route.traffic_class,
        hop_limit: route.hop_limit,
    })
}

/// `ibv_create_ah`.
pub(crate) fn create(pd: &Found<Pd>, attr: &ibv_ah_attr) -> Verb<*mut ibv_ah> {
    let attr = address(&pd.open, attr)?;
    let handle = pd.open.device.create_ah(pd.handle, &attr)?;
    let base = ibv_ah { context: pd.open.base(), pd: pd.object.base(), handle: handle.0 as u32 };
    Ok(Object::new(pd.open.number, base, Ah { handle }).base())
}

/// `ibv_destroy_ah`.
pub(crate) fn destroy(ah: &Found<Ah>) -> Verb<()> {
    ah.open.device.destroy_ah(ah.handle)?;
    ah.object.end();
    Ok(())
}

/// `ibv_init_ah_from_wc`: the way back to who sent a datagram, by its routing header.
pub(crate) fn from_wc(
    open: &Open,
    port: u8,
    wc: &ibv_wc,
    header: Option<&ibv_grh>,
) -> Verb<ibv_ah_attr> {
    if port != gids::PORT || wc.wc_flags & IBV_WC_GRH == 0 {
        return Err(EINVAL);
    }
    let route = Route::read(header.ok_or(EINVAL)?)?;
    let index = gids::index_of(open, route.to).ok_or(EINVAL)?;
    Ok(ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: route.from.0 },
            flow_label: route.flow_label,
            sgid_index: index,
            hop_limit: 0xff,
            traffic_class: route.traffic_class,
        },
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        static_rate: 0,
        is_global: 1,
        port_num: port,
    })
}

/// What of a routing header matters here.
struct Route {
    from: Gid,
    to: Gid,
    traffic_class: u8,
    flow_label: u32,
}

impl Route {
    /// A header of RoCEv2: of IPv6, or of IPv4 in the last 20 of its 40 bytes.
    fn read(header: &ibv_grh) -> Verb<Self> {
        // SAFETY: all bytes of the unions are their raw forms.
        let (sgid, dgid) = unsafe { (header.sgid.raw, header.dgid.raw) };
        let first = u32::from_be(header.version_tclass_flow);
        if first >> 28 == 6 {
            let (traffic_class, flow_label) = ((first >> 20) as u8, first & 0xf_ffff);
            return Ok(Self { from: Gid(sgid), to: Gid(dgid), traffic_class, flow_label });
        }
        // The header of IPv4 begins 20 bytes in: with the last four of the sender's identifier.
        let mut bytes = [0u8; 20];
        let (head, tail) = bytes.split_at_mut(4);
        let sender = sgid.last_chunk::<4>().ok_or(EINVAL)?;
        head.copy_from_slice(sender);
        tail.copy_from_slice(&dgid);
        let [version, traffic_class, ..] = bytes;
        if version != 0x45 {
            return Err(EINVAL);
        }
        let mapped = |at: usize| {
            let octets = bytes.get(at..at + 4)?;
            let octets: [u8; 4] = octets.try_into().ok()?;
            Some(Gid(Ipv4Addr::from(octets).to_ipv6_mapped().octets()))
        };
        let (from, to) = (mapped(12).ok_or(EINVAL)?, mapped(16).ok_or(EINVAL)?);
        Ok(Self { from, to, traffic_class, flow_label: 0 })
    }
}
