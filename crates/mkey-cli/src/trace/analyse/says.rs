//! Findings in one line each, with their numbers.

use super::Report;
use super::lifetimes::Lifetime;
use crate::bench::units::{size, time};
use crate::lang::Lang;

/// A count with its thousands set apart.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time in three digits.
pub fn ns(ns: u64) -> String {
    time(ns as f64)
}

/// A share as `12.3 %`.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.1 => "< 0.1 %".to_owned(),
        percent if percent < 99.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// `one` or `many`, by the count.
pub fn plural<'t>(n: u64, one: &'t str, many: &'t str) -> &'t str {
    if n == 1 { one } else { many }
}

/// A share of the wall time of a finding's nanoseconds.
fn of_wall(report: &Report, part: u64) -> String {
    percent(super::times::share(part, report.head.lived_ns))
}

/// See [`super::data_path`].
pub fn data_path(report: &Report) -> String {
    let of = &report.data_path;
    let (calls, share) = (count(of.times.calls), percent(of.share_of_calls));
    let (time, wall) = (ns(of.times.ns), of_wall(report, of.times.ns));
    let (longest, posts) = (ns(of.times.max_ns), count(of.posts));
    match report.lang {
        Lang::En => format!(
            "{calls} {} between work requests ({share} of all): work waited {time} for them, {wall} of the wall time; p99 {}, longest {longest}; {posts} requests were posted, receives with them",
            plural(of.times.calls, "registration call lay", "registration calls lay"),
            ns(of.times.p99_ns),
        ),
        Lang::Zh => format!(
            "{calls} 次注册或注销位于请求之间（占全部的 {share}）：请求为此等待 {time}，占墙钟时间 {wall}；p99 {}，最长 {longest}；共投递 {posts} 个请求（含接收）",
            ns(of.times.p99_ns),
        ),
    }
}

/// See [`super::repeated`].
pub fn repeated(report: &Report) -> String {
    let of = &report.repeated;
    let (pieces, repeats) = (count(of.pieces), count(of.repeats));
    let (spent, first, saved) = (ns(of.ns), ns(of.first_ns), ns(of.saving_ns()));
    let wall = of_wall(report, of.saving_ns());
    let at_once = match (of.at_once, report.lang) {
        (0, _) => String::new(),
        (n, Lang::En) => format!("; {} while it was registered already", count(n)),
        (n, Lang::Zh) => format!("；其中 {} 次时它已处于注册状态", count(n)),
    };
    match report.lang {
        Lang::En => format!(
            "{pieces} {} of memory {} registered again {repeats} {}: {spent} in place of {first} for the first time of each, {saved} more ({wall} of the wall time){at_once}",
            plural(of.pieces, "piece", "pieces"),
            plural(of.pieces, "was", "were"),
            plural(of.repeats, "time", "times"),
        ),
        Lang::Zh => format!(
            "{pieces} 块内存被重复注册 {repeats} 次：用时 {spent}，而各自首次只需 {first}，多用 {saved}（占墙钟时间 {wall}）{at_once}"
        ),
    }
}

/// See [`super::cost`].
pub fn cost(report: &Report) -> String {
    let of = &report.registration;
    let (calls, busy) = (count(of.calls()), ns(of.busy_ns));
    let wall = percent(of.share_of_wall);
    let cpu = match (of.share_of_cpu.map(percent), report.lang) {
        (None, _) => String::new(),
        (Some(cpu), Lang::En) => format!(" and {cpu} of the CPU time"),
        (Some(cpu), Lang::Zh) => format!("、CPU 时间 {cpu}"),
    };
    // Of one thread at a time it is the same.
    let all = match (of.ns > of.busy_ns, report.lang) {
        (false, _) => String::new(),
        (true, Lang::En) => format!(", {} in all threads", ns(of.ns)),
        (true, Lang::Zh) => format!("，各线程合计 {}", ns(of.ns)),
    };
    match report.lang {
        Lang::En => {
            format!("registration took {busy}, {wall} of the wall time{cpu}: {calls} calls{all}")
        }
        Lang::Zh => format!("注册用去 {busy}，占墙钟时间 {wall}{cpu}：{calls} 次调用{all}"),
    }
}

/// See [`super::repeated::Overlapping`].
pub fn overlap(report: &Report) -> String {
    let of = &report.repeated.overlapping;
    let (ranges, calls) = (count(of.ranges), count(of.registrations));
    let (stretches, bytes, spent) = (count(of.stretches), size(of.bytes), ns(of.ns));
    let same = match (of.same_start, report.lang) {
        (0, _) => String::new(),
        (n, Lang::En) => format!("; {} begin where one of another length does", count(n)),
        (n, Lang::Zh) => format!("；其中 {} 个与另一长度的区域起点相同", count(n)),
    };
    match report.lang {
        Lang::En => format!(
            "{calls} registrations of {ranges} different ranges overlap, in {stretches} {} of {bytes}: {spent}{same}",
            plural(of.stretches, "stretch", "stretches"),
        ),
        Lang::Zh => format!(
            "{calls} 次注册的 {ranges} 个不同范围相互重叠，位于 {stretches} 段共 {bytes} 内：{spent}{same}"
        ),
    }
}

/// See [`super::small`].
pub fn small(report: &Report) -> String {
    let of = &report.small;
    let (regions, could) = (count(of.regions), count(of.could_be));
    let (calls, spent) = (count(of.registrations), ns(of.ns));
    match report.lang {
        Lang::En => format!(
            "{regions} regions below 1 MiB lie side by side in a mapping: {could} would do in their place; {calls} registrations of them took {spent}"
        ),
        Lang::Zh => format!(
            "{regions} 个小于 1 MiB 的区域位于同一映射中：{could} 个即可；其 {calls} 次注册用时 {spent}"
        ),
    }
}

/// See [`super::held::Held::leaked`].
pub fn leaked(report: &Report) -> String {
    let of = &report.held.leaked;
    let (regions, bytes) = (count(of.regions), size(of.bytes));
    match report.lang {
        Lang::En => format!(
            "{regions} {} ({bytes}) {} still registered when the process ended",
            plural(of.regions, "region", "regions"),
            plural(of.regions, "was", "were"),
        ),
        Lang::Zh => format!("进程结束时仍有 {regions} 个区域（{bytes}）未注销"),
    }
}

/// See [`super::held::Held::unused`].
pub fn unused(report: &Report) -> String {
    let of = &report.held.unused;
    let (regions, bytes, spent) = (count(of.regions), size(of.bytes), ns(of.ns));
    match report.lang {
        Lang::En => format!(
            "{regions} of {} {} ({bytes}) {} never used by any work request; registering took {spent}",
            count(report.held.regions),
            plural(report.held.regions, "region", "regions"),
            plural(of.regions, "was", "were"),
        ),
        Lang::Zh => format!(
            "{} 个区域中有 {regions} 个（{bytes}）从未被任何请求使用；注册用时 {spent}",
            count(report.held.regions),
        ),
    }
}

/// See [`super::granted`].
pub fn granted(report: &Report) -> String {
    let of = &report.rights;
    let first = of.excess.first.first();
    let list = first.map_or_else(String::new, |excess| excess.unused.join(", "));
    let here = first.map_or(0, |excess| excess.regions);
    let (regions, here) = (count(of.regions), count(here));
    let remote = match (of.remote, report.lang) {
        (0, _) => String::new(),
        (n, Lang::En) => format!(", {} of them one that lets a peer in", count(n)),
        (n, Lang::Zh) => format!("，其中 {} 个允许对端访问", count(n)),
    };
    match report.lang {
        Lang::En => format!(
            "{regions} {} rights that were never used{remote}; most often {list} ({here})",
            plural(of.regions, "region had", "regions had"),
        ),
        Lang::Zh => {
            format!("{regions} 个区域拥有从未使用的权限{remote}；最常见的是 {list}（{here} 个）")
        }
    }
}

/// See [`super::windows::Windows::never_taken_back`].
pub fn window_kept(report: &Report) -> String {
    let kept = report.windows.never_taken_back;
    let of = count(report.windows.count());
    let peer = match (report.windows.maybe_by_peer, report.lang) {
        (false, _) => "",
        (true, Lang::En) => "; a peer may have done so: SENDs with invalidate were posted",
        (true, Lang::Zh) => "；对端可能已使其失效：有带失效的 SEND",
    };
    match report.lang {
        Lang::En => format!(
            "{} of {of} {} bound and neither invalidated by the process nor freed{peer}",
            count(kept),
            plural(kept, "window was", "windows were"),
        ),
        Lang::Zh => {
            format!("{of} 个窗口中有 {} 个被绑定后，既未被本进程失效也未释放{peer}", count(kept))
        }
    }
}

/// See [`super::windows::Windows::never_bound`].
pub fn window_unused(report: &Report) -> String {
    let idle = report.windows.never_bound;
    let (of, n) = (count(report.windows.count()), count(idle));
    match report.lang {
        Lang::En => {
            format!("{n} of {of} {} never bound", plural(idle, "window was", "windows were"))
        }
        Lang::Zh => format!("{of} 个窗口中有 {n} 个从未绑定"),
    }
}

/// See [`super::counters`].
pub fn page_faults(report: &Report) -> String {
    let of = &report.counters;
    let (faults, gone) = (count(of.page_faults), count(of.page_invalidations));
    let asked = count(of.page_prefetches);
    match report.lang {
        Lang::En => format!(
            "{faults} {} of on-demand memory as the devices count, {gone} invalidations, {asked} prefetches",
            plural(of.page_faults, "page fault", "page faults"),
        ),
        Lang::Zh => {
            format!("按需分页内存（设备计数）：缺页 {faults}，失效 {gone}，预取 {asked}")
        }
    }
}

/// See [`super::failures`].
pub fn failed_work(report: &Report) -> String {
    let of = &report.failures;
    let (failed, flushed) = (count(of.failed_work), count(of.flushed_work));
    let first = of.work.first.first().map_or_else(String::new, |work| work.name.clone());
    match (report.lang, of.failed_work) {
        (Lang::En, 0) => format!("{flushed} work requests were flushed, none failed otherwise"),
        (Lang::Zh, 0) => format!("{flushed} 个请求被冲刷，没有其他失败"),
        (Lang::En, n) => format!(
            "{failed} work {} in error ({first}), {flushed} more were flushed",
            plural(n, "request completed", "requests completed"),
        ),
        (Lang::Zh, _) => format!("{failed} 个请求以错误完成（{first}），另有 {flushed} 个被冲刷"),
    }
}

/// See [`super::failures`].
pub fn failed_calls(report: &Report) -> String {
    let of = &report.failures;
    let failed = count(of.failed_calls);
    let first = of.calls.first.first();
    let first = first.map_or_else(String::new, |call| {
        format!("{}: {} {}", call.verb, call.name, count(call.times))
    });
    match report.lang {
        Lang::En => format!(
            "{failed} {} failed; {first} {}",
            plural(of.failed_calls, "call", "calls"),
            plural(of.calls.first.first().map_or(0, |call| call.times), "time", "times"),
        ),
        Lang::Zh => format!("{failed} 次调用失败；{first} 次"),
    }
}

/// See [`super::head::Overhead::lost`].
pub fn lost(report: &Report) -> String {
    let lost = count(report.head.overhead.lost);
    match report.lang {
        Lang::En => format!("{lost} records found no room: the counts of this report are too low"),
        Lang::Zh => format!("{lost} 条记录没有空间：本报告中的计数偏低"),
    }
}

/// A mistake, and how many regions have one of its kind besides.
pub fn lifetime(report: &Report, first: &Lifetime, others: u64) -> String {
    let what = &first.what;
    match (others, report.lang) {
        (0, _) => what.clone(),
        (n, Lang::En) => {
            format!("{what}; and {} more {} so", count(n), plural(n, "region", "regions"))
        }
        (n, Lang::Zh) => format!("{what}；另有 {} 个区域如此", count(n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(n), text);
        }
        for (share, text) in [
            (0.0, "0 %"),
            (0.0001, "< 0.1 %"),
            (0.1234, "12.3 %"),
            (0.9999, "100 %"),
            (3.5, "350 %"),
        ] {
            assert_eq!(percent(share), text);
        }
    }
}
