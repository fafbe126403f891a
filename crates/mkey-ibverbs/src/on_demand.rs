//! On-demand memory: advice, and what the driver counts.

use crate::advice::advise;
use crate::device::Core;
use crate::failure::Refused;
use crate::objects::Pd;
use crate::trial::Trial;
use mkey_core::device::*;
use mkey_core::error::{Error, Reason, Result};
use mkey_core::key::Lkey;
use mkey_core::rights::Rights;
use mkey_core::work::Sge;
use mkey_os::error::OsError;
use mkey_os::rdma_netlink::{Counter, NetlinkError, mr_counters};
use mkey_sys::types::*;
use std::sync::Arc;

impl Core {
    pub(crate) fn advise_mr(
        &self,
        pd: &Arc<Pd>,
        advice: Advice,
        flush: bool,
        sges: &[Sge],
    ) -> Result<()> {
        let verb = "advise_mr";
        let fail =
            |reason| Error::new(verb, format_args!("{advice:?}, {} ranges", sges.len()), reason);
        if sges.is_empty() {
            return Ok(());
        }
        // Where it is not offered, that is why it is refused.
        if self.known().tried.advise == Trial::Works {
            let writes = advice == Advice::PrefetchWrite;
            sges.iter().try_for_each(|sge| self.may_advise(pd, writes, sge)).map_err(fail)?;
        }
        let advice = match advice {
            Advice::Prefetch => IBV_ADVISE_MR_ADVICE_PREFETCH,
            Advice::PrefetchWrite => IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
            Advice::PrefetchNoFault => IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
            _ => return Err(fail(Reason::Unsupported { capability: Capability::Advise })),
        };
        let flags = if flush { IBV_ADVISE_MR_FLAG_FLUSH } else { 0 };
        let entry =
            |sge: &Sge| ibv_sge { addr: sge.address.0, length: sge.length, lkey: sge.lkey.0.0 };
        let mut entries: Vec<_> = sges.iter().map(entry).collect();
        let give = |entries: &mut [ibv_sge]| {
            let answer = pd.live.with(|pd| {
                crate::failure::again(|| {
                    // SAFETY: the domain is live.
                    unsafe { advise(&self.context, pd, advice, flags, entries) }
                })
            });
            answer.ok_or_else(|| self.objects.pds.unknown(verb, pd.handle))
        };
        give(&mut entries)?.map_err(|errno| {
            // Advice can be given again: one by one it shows whose fault it is.
            let blamed = |entry: &mut ibv_sge| {
                matches!(give(std::slice::from_mut(entry)), Ok(Err(again)) if again == errno)
            };
            let at = match entries.len() {
                1 => Some(0),
                _ if !matches!(errno, libc::ENOENT | libc::EFAULT) => None,
                _ => entries.iter_mut().position(blamed),
            };
            let first = at.and_then(|at| sges.get(at)).copied().unwrap_or_default();
            fail(match errno {
                // The ranges have changed meanwhile.
                libc::ENOENT | libc::EFAULT if at.is_none() => {
                    Reason::System { call: "ibv_advise_mr", errno }
                }
                libc::ENOENT => Reason::UnknownLkey { key: first.lkey.0 },
                libc::EFAULT => {
                    let (address, length) = (first.address, u64::from(first.length));
                    Reason::OutOfRange { address, length }
                }
                _ => {
                    let lacks = Some(Capability::Advise);
                    Refused { context: &self.context, verb: "ibv_advise_mr", errno, lacks }.reason()
                }
            })
        })
    }

    /// Whether advice fits what it names (R-ODP-09 to 13, R-ODP-17). Not all drivers look: soft-RoCE
    /// of Linux 7.3 takes any region for an on-demand one, and reads beyond what it has of it.
    fn may_advise(&self, pd: &Arc<Pd>, writes: bool, sge: &Sge) -> std::result::Result<(), Reason> {
        let Sge { address, length, lkey: Lkey(key) } = *sge;
        let (objects, index) = (&self.objects, u64::from(key.index()));
        let regions = objects.mrs.table.read();
        let region = objects.mrs.find(&regions, index).filter(|mr| mr.lkey == key.0);
        let Some(region) = region.filter(|mr| mr.rights.contains(Rights::ON_DEMAND)) else {
            if objects.mws.handles.read().contains_key(&index) {
                let (value, allowed) = (key.0.into(), "the lkey of a memory region");
                return Err(Reason::Argument { what: "lkey", value, allowed });
            }
            return Err(Reason::UnknownLkey { key });
        };
        if !Arc::ptr_eq(&region.pd, pd) {
            return Err(Reason::OtherPd);
        }
        if writes && !region.rights.contains(Rights::LOCAL_WRITE) {
            return Err(Reason::RightMissing { missing: Rights::LOCAL_WRITE });
        }
        let length = u64::from(length);
        if address.0.checked_add(length).is_none() {
            return Err(Reason::OutOfRange { address, length });
        }
        Ok(())
    }

    /// What the driver has counted of an on-demand region.
    pub(crate) fn odp_stats(&self, handle: MrHandle) -> Result<OdpStats> {
        let verb = "odp_stats";
        let fail = |reason| Error::new(verb, format_args!("handle {:#x}", handle.0), reason);
        let region = self.objects.mrs.table.read().get(&handle.0).map(|mr| (mr.lkey, mr.rights));
        let (lkey, rights) =
            region.ok_or_else(|| self.objects.mrs.table.unknown(verb, handle.0))?;
        if !rights.contains(Rights::ON_DEMAND) {
            let on = "a region that is not on demand";
            return Err(fail(Reason::NotHere { operation: "counting of faults", on }));
        }
        let counters = mr_counters(&self.context.name, lkey).map_err(|error| {
            fail(match error {
                NetlinkError::System(OsError { call, errno }) => {
                    Reason::System { call, errno: errno.raw_os_error() }
                }
                NetlinkError::KeysHidden => {
                    let call = "finding the region in the kernel's list, which tells keys only \
                                with CAP_NET_ADMIN";
                    Reason::System { call, errno: libc::EPERM }
                }
                // An open device that the kernel does not list any more.
                NetlinkError::NoDevice { .. } if self.context.looks_gone() => Reason::DeviceGone,
                _ => Reason::System { call: "reading the kernel's RDMA netlink", errno: libc::EIO },
            })
        })?;
        stats(&counters)
            .ok_or_else(|| fail(Reason::Unsupported { capability: Capability::OnDemandStats }))
    }
}

/// A region's counters by the names that drivers give them; `None`: there are none of these.
fn stats(counters: &[Counter]) -> Option<OdpStats> {
    let count = |name: &str| counters.iter().find(|of| of.name == name).map(|of| of.value);
    Some(OdpStats {
        faults: count("page_faults")?,
        invalidations: count("page_invalidations")?,
        // The last that drivers learned to count.
        prefetches: count("page_prefetch").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(names: &[(&str, u64)]) -> Vec<Counter> {
        names.iter().map(|&(name, value)| Counter { name: name.to_owned(), value }).collect()
    }

    #[test]
    fn counters_are_known_by_their_names_in_old_and_new_drivers() {
        let old = counters(&[("page_faults", 1), ("page_invalidations", 2)]);
        assert_eq!(stats(&old), Some(OdpStats { faults: 1, invalidations: 2, prefetches: 0 }));
        let new = counters(&[
            ("page_faults", 1),
            ("page_faults_handled", 7),
            ("page_invalidations", 2),
            ("page_invalidations_handled", 8),
            ("page_prefetch", 3),
        ]);
        assert_eq!(stats(&new), Some(OdpStats { faults: 1, invalidations: 2, prefetches: 3 }));
        assert_eq!(stats(&[]), None);
        assert_eq!(stats(&counters(&[("page_prefetch", 3)])), None);
    }
}
