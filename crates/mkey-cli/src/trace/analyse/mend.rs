//! What to change, by the code of a finding.

use super::code::Code;
use crate::lang::Lang;

/// What to change, in words.
pub fn mend(code: Code, lang: Lang) -> &'static str {
    let (en, zh) = match code {
        Code::KeyAfterDereg => (
            "Deregister only after the last completion of work that names the key; drop keys that were handed to peers first.",
            "待使用该键的最后一个请求完成后再注销；先收回已交给对端的键。",
        ),
        Code::GoneInFlight => (
            "Keep the memory until the completion is polled. After a timeout: queue pair to ERR, poll until it is drained, then free.",
            "轮询到完成之前保留内存。超时时：先把 QP 置为 ERR 并轮询至排空，再释放。",
        ),
        Code::DeregInFlight => (
            "Wait for the completions of all work that names the region (drain the queue pair), then deregister.",
            "等所有使用该区域的请求完成（排空 QP）后再注销。",
        ),
        Code::UnmappedRegistered | Code::FreedRegistered => (
            "Deregister first, then free. A cache of registrations has to be told of free and munmap; a pool that registers once avoids both.",
            "先注销，后释放。注册缓存必须得知 free 与 munmap；一次注册的内存池可避免两者。",
        ),
        Code::ReceivedTwice => (
            "Post a buffer again only after its receive has completed: two messages would land in it.",
            "只有在其接收完成后才再次投递该缓冲，否则两条消息会写入同一处。",
        ),
        Code::Outside => (
            "Compute address and length from the region that the key is of; a NIC refuses this with a protection error.",
            "地址与长度应取自该键所属的区域；网卡会以保护错误拒绝。",
        ),
        Code::FailedWork => (
            "See what it means below; `mkey explain` has all causes.",
            "含义见下文；`mkey explain` 列出全部原因。",
        ),
        Code::FailedCalls => (
            "See what it means below; `mkey explain VERB ERRNO --pid PID` looks at a live process.",
            "含义见下文；`mkey explain VERB ERRNO --pid PID` 可检查运行中的进程。",
        ),
        Code::DataPath => (
            "Register before the first work request: from a pool that is registered once, or keep registrations in a cache; where a peer must get rights by the request, memory windows or fast registration.",
            "在第一个请求之前注册：用一次注册的内存池，或用缓存保留注册；若需按请求授予对端权限，用内存窗口或快速注册。",
        ),
        Code::Repeated => (
            "Keep the registration as long as the memory lives, or use a cache of registrations that is told of free and munmap.",
            "只要内存还在就保留注册，或使用能得知 free 与 munmap 的注册缓存。",
        ),
        Code::Cost => (
            "Start with the place that costs most; fewer, larger and longer-lived regions on huge pages cost least.",
            "从开销最大的位置入手；少量、较大、长期存在且位于大页上的区域开销最小。",
        ),
        Code::Overlap => (
            "Register the whole of the memory once and use parts of it: each registration pins its pages again and counts against RLIMIT_MEMLOCK.",
            "整段内存只注册一次并使用其中部分：每次注册都会再次固定页面并计入 RLIMIT_MEMLOCK。",
        ),
        Code::Small => (
            "Register the stretch that holds them as one region: one key, one entry in the NIC's table, one call.",
            "把容纳它们的整段作为一个区域注册：一个键、网卡表中一个表项、一次调用。",
        ),
        Code::Leaked => (
            "Deregister before the process ends, or where the owner of the memory ends; in a process that runs on these would add up.",
            "在进程结束前、或内存的拥有者结束时注销；在长期运行的进程中它们会不断累积。",
        ),
        Code::Unused => (
            "Do not register it, or only when it is first used: its pages are pinned for nothing.",
            "不要注册，或在首次使用时再注册：其页面被白白固定。",
        ),
        Code::Rights => (
            "Grant only what is used: a right that is not granted can be used by no mistake and no intruder. On iWARP, memory that an RDMA READ reads into needs REMOTE_WRITE.",
            "只授予用到的权限：未授予的权限不会被误用，也不会被入侵者利用。在 iWARP 上，RDMA READ 的目的内存需要 REMOTE_WRITE。",
        ),
        Code::WindowKept => (
            "Invalidate a window once the peer is done (LOCAL_INV, or SEND with invalidate by the peer): until then it has access.",
            "对端用完后立即使窗口失效（LOCAL_INV，或由对端发送带失效的 SEND）：在此之前它仍可访问。",
        ),
        Code::WindowUnused => (
            "Allocate windows where they are bound, or fewer of them.",
            "在需要绑定处才分配窗口，或少分配一些。",
        ),
        Code::PageFaults => (
            "Prefetch with ibv_advise_mr before the first use, or pin the part that is always used: work waits for each fault.",
            "首次使用前用 ibv_advise_mr 预取，或固定常用部分：每次缺页都会让请求等待。",
        ),
        Code::Lost => (
            "Give the recording more room (--limit), or record for a shorter time (--duration).",
            "为记录提供更多空间（--limit），或缩短记录时间（--duration）。",
        ),
    };
    lang.pick(en, zh)
}
