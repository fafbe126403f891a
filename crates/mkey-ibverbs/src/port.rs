//! The first port, and paths from it.

use crate::context::Context;
use mkey_core::device::{AhAttr, Gid, PortInfo};
use mkey_core::error::Reason;
use mkey_sys::inline;
use mkey_sys::types::*;
use std::path::Path;

/// The only port that is used.
pub(crate) const PORT: u8 = 1;
/// Entries of the table of identifiers that are looked at: those that a handle can name.
const MOST_GIDS: usize = 256;

/// The attributes of the port; the errno if they can not be had.
pub(crate) fn attributes(context: &Context) -> Result<ibv_port_attr, i32> {
    let mut attr: ibv_port_attr = bytemuck::Zeroable::zeroed();
    // SAFETY: the device is open, and the attributes are ours to be written.
    let answer =
        unsafe { inline::ibv_query_port(context.verbs, context.raw(), PORT, &raw mut attr) };
    if answer == 0 { Ok(attr) } else { Err(crate::failure::errno_of(answer)) }
}

/// The port in our words: down, with the smallest datagram, where it does not tell.
pub(crate) fn info(context: &Context) -> PortInfo {
    let attr = attributes(context).ok();
    let active = attr.is_some_and(|attr| attr.state == IBV_PORT_ACTIVE);
    let active_mtu = attr.map_or(256, |attr| bytes_of(attr.active_mtu));
    let (gid_index, gid) = best_gid(context).unwrap_or_default();
    PortInfo { active, active_mtu, gid, gid_index }
}

/// The identifier by which peers reach the port best.
fn best_gid(context: &Context) -> Option<(u8, Gid)> {
    let blank: ibv_gid_entry = bytemuck::Zeroable::zeroed();
    let mut entries = vec![blank; MOST_GIDS];
    // SAFETY: the device is open, and there are so many entries to write.
    let asked = unsafe {
        inline::ibv_query_gid_table(
            context.verbs,
            context.raw(),
            entries.as_mut_ptr(),
            MOST_GIDS,
            0,
        )
    };
    let found = asked.ok().and_then(|found| usize::try_from(found).ok());
    match found {
        Some(found) => entries.truncate(found),
        None => entries = one_by_one(context),
    }
    let ours = entries.iter().filter(|entry| entry.port_num == u32::from(PORT));
    let ranked = ours.filter_map(|entry| {
        // SAFETY: every view of an identifier has all its bytes.
        let gid = Gid(unsafe { entry.gid.raw });
        Some((rank(&gid, ibv_gid_type(entry.gid_type))?, u8::try_from(entry.gid_index).ok()?, gid))
    });
    // Of equals the first.
    let best = ranked.min_by_key(|&(rank, index, _)| (rank, index));
    best.map(|(_, index, gid)| (index, gid))
}

/// The table as older libraries tell it, without types, which the kernel shows elsewhere.
fn one_by_one(context: &Context) -> Vec<ibv_gid_entry> {
    let attr = attributes(context).ok();
    let most = attr.map_or(0, |attr| attr.gid_tbl_len.clamp(0, MOST_GIDS as i32));
    let infiniband = attr.is_some_and(|attr| attr.link_layer == IBV_LINK_LAYER_INFINIBAND);
    let entry = |index: i32| {
        let mut entry: ibv_gid_entry = bytemuck::Zeroable::zeroed();
        (entry.gid_index, entry.port_num) = (index.cast_unsigned(), u32::from(PORT));
        entry.gid_type = type_of(Path::new("/"), &context.name, index, infiniband).0;
        // SAFETY: the device is open, and the identifier is ours to be written.
        let answer =
            unsafe { context.verbs.ibv_query_gid(context.raw(), PORT, index, &raw mut entry.gid) };
        (answer == 0).then_some(entry)
    };
    (0..most).filter_map(entry).collect()
}

/// The type of an identifier, as the kernel shows it below `root`. It has one word for those of
/// InfiniBand and of RoCE v1; kernels before 4.5, which show none, have no others.
fn type_of(root: &Path, device: &str, index: i32, infiniband: bool) -> ibv_gid_type {
    let types = format!("sys/class/infiniband/{device}/ports/{PORT}/gid_attrs/types/{index}");
    match std::fs::read_to_string(root.join(types)) {
        Ok(word) if word.trim() == "RoCE v2" => IBV_GID_TYPE_ROCE_V2,
        _ if infiniband => IBV_GID_TYPE_IB,
        _ => IBV_GID_TYPE_ROCE_V1,
    }
}

/// How good an identifier is, 0 the best; `None` for an empty entry. By RoCE v2 packets are routed,
/// and an IPv4 address reaches further than a link-local one.
fn rank(gid: &Gid, kind: ibv_gid_type) -> Option<u8> {
    let empty = gid.0 == [0; 16];
    let mapped = gid.0.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    let link_local = gid.0.starts_with(&[0xfe, 0x80]);
    match kind {
        _ if empty => None,
        IBV_GID_TYPE_ROCE_V2 if mapped => Some(0),
        IBV_GID_TYPE_ROCE_V2 if !link_local => Some(1),
        IBV_GID_TYPE_ROCE_V2 => Some(2),
        IBV_GID_TYPE_IB => Some(3),
        _ => Some(4),
    }
}

/// Bytes of an MTU; the smallest for one that is unknown.
pub(crate) fn bytes_of(mtu: ibv_mtu) -> u32 {
    match mtu.0 {
        code @ 1..=5 => 128 << code,
        _ => 256,
    }
}

/// The MTU of so many bytes.
pub(crate) fn mtu_of(bytes: u32) -> Result<ibv_mtu, Reason> {
    match bytes {
        256 | 512 | 1024 | 2048 | 4096 => Ok(ibv_mtu(bytes.ilog2() - 7)),
        _ => Err(Reason::Argument {
            what: "path_mtu",
            value: u64::from(bytes),
            allowed: "256, 512, 1024, 2048 or 4096",
        }),
    }
}

/// A path as libibverbs takes it.
pub(crate) fn path(context: &Context, to: &AhAttr) -> Result<ibv_ah_attr, Reason> {
    let mut attr: ibv_ah_attr = bytemuck::Zeroable::zeroed();
    attr.is_global = 1;
    attr.port_num = to.port;
    attr.grh.dgid = ibv_gid { raw: to.gid.0 };
    attr.grh.sgid_index = to.gid_index;
    attr.grh.hop_limit = to.hop_limit;
    attr.grh.traffic_class = to.traffic_class;
    let port = attributes(context).ok();
    if let Some(port) = port.filter(|port| port.link_layer == IBV_LINK_LAYER_INFINIBAND) {
        if to.gid != info(context).gid {
            // It would have to be asked of the subnet manager.
            return Err(Reason::NotHere {
                operation: "a path by a GID alone",
                on: "an InfiniBand port, which needs the peer's LID",
            });
        }
        attr.dlid = port.lid;
    }
    Ok(attr)
}

/// A path of libibverbs in our words.
pub(crate) fn path_of(attr: &ibv_ah_attr) -> Option<AhAttr> {
    (attr.is_global != 0).then_some(AhAttr {
        // SAFETY: every view of an identifier has all its bytes.
        gid: Gid(unsafe { attr.grh.dgid.raw }),
        gid_index: attr.grh.sgid_index,
        port: attr.port_num,
        traffic_class: attr.grh.traffic_class,
        hop_limit: attr.grh.hop_limit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_there_and_back() {
        for bytes in [256, 512, 1024, 2048, 4096] {
            assert_eq!(bytes_of(mtu_of(bytes).unwrap()), bytes);
        }
        assert_eq!(mtu_of(1024).unwrap(), IBV_MTU_1024);
        for wrong in [0, 1, 255, 1500, 8192, u32::MAX] {
            assert!(matches!(mtu_of(wrong), Err(Reason::Argument { what: "path_mtu", .. })));
        }
        assert_eq!(bytes_of(ibv_mtu(9)), 256);
    }

    #[test]
    fn an_ipv4_address_over_roce_v2_is_the_best_identifier() {
        let mut mapped = Gid::default();
        mapped.0[10..].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 1]);
        let mut link_local = Gid::default();
        link_local.0[..2].copy_from_slice(&[0xfe, 0x80]);
        let v2 = |gid| rank(gid, IBV_GID_TYPE_ROCE_V2);
        assert!(v2(&mapped) < v2(&Gid([0x20; 16])) && v2(&Gid([0x20; 16])) < v2(&link_local));
        assert!(v2(&link_local) < rank(&mapped, IBV_GID_TYPE_ROCE_V1));
        assert_eq!(v2(&Gid::default()), None);
    }

    #[test]
    fn the_kernel_shows_the_types_of_identifiers_to_older_libraries() {
        let root = std::env::temp_dir().join(format!("mkey-gids-{}", std::process::id()));
        let types = root.join("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types");
        std::fs::create_dir_all(&types).unwrap();
        std::fs::write(types.join("0"), "IB/RoCE v1\n").unwrap();
        std::fs::write(types.join("1"), "RoCE v2\n").unwrap();
        let of = |index, infiniband| type_of(&root, "mlx5_0", index, infiniband);
        assert_eq!(of(0, false), IBV_GID_TYPE_ROCE_V1);
        assert_eq!(of(0, true), IBV_GID_TYPE_IB);
        assert_eq!(of(1, false), IBV_GID_TYPE_ROCE_V2);
        assert_eq!(of(2, false), IBV_GID_TYPE_ROCE_V1);
        std::fs::remove_dir_all(&root).unwrap();
        // The same address is there once for each.
        let mut mapped = Gid::default();
        mapped.0[10..].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 1]);
        assert!(rank(&mapped, IBV_GID_TYPE_ROCE_V2) < rank(&mapped, IBV_GID_TYPE_ROCE_V1));
    }
}
