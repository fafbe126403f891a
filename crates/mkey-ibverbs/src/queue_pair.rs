//! Making and ending queue pairs.

use crate::attributes::limit;
use crate::device::Core;
use crate::failure::{Refused, create};
use crate::fast_mr::Umr;
use crate::live::Live;
use crate::objects::{Qp, context_of};
use crate::transition;
use mkey_core::device::*;
use mkey_core::error::{Error, Object, Reason, Result};
use mkey_core::queue_pair::{QpInit, QpKind};
use mkey_sys::types::*;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, PoisonError};

impl Core {
    pub(crate) fn create_qp(&self, pd: PdHandle, init: &QpInit) -> Result<QpInfo> {
        let verb = "create_qp";
        let (objects, pd) = (&self.objects, self.pd(verb, pd)?);
        let kind = transition::kind_of(init.kind).ok_or_else(|| {
            let reason = Reason::Unsupported { capability: Capability::Transport };
            Error::new(verb, init.kind, reason)
        })?;
        let send_cq = objects.cqs.get(verb, init.send_cq.0)?;
        let recv_cq = objects.cqs.get(verb, init.recv_cq.0)?;
        let srq = init.srq.map(|srq| objects.srqs.get(verb, srq.0)).transpose()?;
        let handle = objects.qps.handle();
        let mut attr: ibv_qp_init_attr = bytemuck::Zeroable::zeroed();
        attr.qp_context = context_of(handle);
        (attr.qp_type, attr.sq_sig_all) = (kind, c_int::from(init.signal_all));
        attr.cap = ibv_qp_cap {
            max_send_wr: init.max_send_wr,
            max_recv_wr: init.max_recv_wr,
            max_send_sge: init.max_send_sge,
            max_recv_sge: init.max_recv_sge,
            max_inline_data: init.max_inline,
        };
        let asked = attr.cap;
        let made = pd.live.with(|raw| {
            Live::with_both(&send_cq.live, &recv_cq.live, |send, recv| {
                (attr.send_cq, attr.recv_cq) = (send, recv);
                match &srq {
                    None => self.make_qp(raw, init.kind, &mut attr),
                    Some(srq) => srq
                        .live
                        .with(|srq| {
                            attr.srq = srq;
                            self.make_qp(raw, init.kind, &mut attr)
                        })
                        .unwrap_or(Err(libc::ENOENT)),
                }
            })
        });
        let made = made.flatten().unwrap_or(Err(libc::ENOENT));
        let (qp, umr) = made.map_err(|errno| self.why_no_qp(verb, errno, init))?;
        // SAFETY: a live queue pair.
        let num = unsafe { qp.as_ref().qp_num };
        let cap = ibv_qp_cap {
            max_send_wr: attr.cap.max_send_wr.max(asked.max_send_wr),
            max_recv_wr: attr.cap.max_recv_wr.max(asked.max_recv_wr),
            max_send_sge: attr.cap.max_send_sge.max(asked.max_send_sge),
            max_recv_sge: attr.cap.max_recv_sge.max(asked.max_recv_sge),
            max_inline_data: attr.cap.max_inline_data.max(asked.max_inline_data),
        };
        let (live, kind) = (Live::new(qp), init.kind);
        let mut datagrams = self.datagrams.write().unwrap_or_else(PoisonError::into_inner);
        // Completions of a queue pair that was destroyed may still come, so it stays until its
        // number is given to another.
        if kind == QpKind::Ud {
            datagrams.insert(num)
        } else {
            datagrams.remove(&num)
        };
        drop(datagrams);
        let qp = Qp { handle, live, num, kind, cap, umr, pd, send_cq, recv_cq, srq };
        objects.qps.put(handle, Arc::new(qp));
        Ok(QpInfo { handle: QpHandle(handle), qp_num: num })
    }

    pub(crate) fn destroy_qp(&self, qp: QpHandle) -> Result<()> {
        let (verb, objects) = ("destroy_qp", &self.objects);
        let found = objects.qps.get(verb, qp.0)?;
        // SAFETY: a live queue pair. It waits for the acknowledgement of its events, which are
        // acknowledged as they are taken.
        let ended = found.live.end(|qp| unsafe { self.context.verbs.ibv_destroy_qp(qp) });
        ended.map_err(|errno| {
            self.refused(verb, errno).destroying(Object::Qp, qp.0, "a multicast group has it")
        })?;
        objects.qps.take(verb, qp.0).map(drop)
    }

    fn make_qp(
        &self,
        pd: *mut ibv_pd,
        kind: QpKind,
        attr: &mut ibv_qp_init_attr,
    ) -> std::result::Result<(ptr::NonNull<ibv_qp>, Option<Umr>), i32> {
        let context = &self.context;
        if kind == QpKind::Rc
            && let Some((qp, umr)) = Umr::create_qp(context, pd, attr)
        {
            return Ok((qp, Some(umr)));
        }
        // SAFETY: a live domain, and attributes of ours that name live queues.
        create(|| unsafe { context.verbs.ibv_create_qp(pd, &raw mut *attr) }).map(|qp| (qp, None))
    }

    #[cold]
    fn why_no_qp(&self, verb: &'static str, errno: i32, init: &QpInit) -> Error {
        let attr = &self.attr.orig_attr;
        let (max_wr, max_sge) = (limit(attr.max_qp_wr), limit(attr.max_sge));
        // Only trying tells that, which is not for here.
        let max_inline = self.known.newest().map(|known| known.tried.max_inline);
        let max_inline = max_inline.filter(|most| *most > 0).unwrap_or(u32::MAX);
        let (wr, sge) = ("at most the device's max_qp_wr", "at most the device's max_sge");
        let inline = "at most the device's max_inline";
        let asked = [
            ("max_send_wr", init.max_send_wr, max_wr, wr),
            ("max_recv_wr", init.max_recv_wr, max_wr, wr),
            ("max_send_sge", init.max_send_sge, max_sge, sge),
            ("max_recv_sge", init.max_recv_sge, max_sge, sge),
            ("max_inline", init.max_inline, max_inline, inline),
        ];
        self.oversized(verb, errno, &asked).unwrap_or_else(|| {
            let live = self.objects.qps.read().len();
            let lacks = Some(Capability::Transport);
            let refused = Refused { lacks, ..self.refused(verb, errno) };
            refused.creating(Object::Qp, live, limit(attr.max_qp), init.kind)
        })
    }
}
