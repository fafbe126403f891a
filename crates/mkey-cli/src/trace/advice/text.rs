//! Advice as text.

use super::{Advice, LEAST_NS, LEAST_SHARE, Part, Proposal, Weighed};
use crate::bench::report::Outcome;
use crate::bench::table::{Line, Side, WIDTH, render};
use crate::bench::units::{count, size, time};
use crate::model::check::printable;

/// Changes that are told in words at most; the table has all.
const MOST: usize = 3;

/// The table, the changes to make, and what they stand on.
pub fn text(advice: &Advice) -> String {
    let mut out = String::new();
    let Some(spent) = &advice.spent else {
        let why = match advice.registrations {
            0 => "nothing was registered that another strategy could do otherwise",
            _ => "what registrations took was not recorded",
        };
        say(&mut out, &format!("No advice: {why}."), "");
        left(&mut out, advice);
        return out;
    };
    let mut head = format!(
        "Registering and deregistering took {} (recorded), {} of the run{}.",
        time(spent.ns),
        percent(advice.run.of_wall(spent.ns)),
        advice.cpu_ns.and_then(|cpu| advice.run.of_cpu(spent.ns, cpu)).map_or_else(
            || "; its CPU time is not known".to_owned(),
            |share| format!(" and {} of its CPU time", percent(share))
        )
    );
    if let Some(site) = &advice.site {
        head.push_str(&format!(" Most of it: {} in {}.", time(site.ns as f64), site.place));
    }
    let mut advised = advice.proposals.iter().filter(|proposal| proposal.is_advised).peekable();
    if advised.peek().is_none() {
        let (share, least) = (percent(LEAST_SHARE), time(LEAST_NS));
        head.push_str(&format!(
            " Nothing is advised: no strategy saves {share} of it, and {least}."
        ));
        say(&mut out, &head, "");
        left(&mut out, advice);
        return out;
    }
    head.push_str(" For this very run, by another strategy:");
    say(&mut out, &head, "");
    out.push('\n');
    let columns = [
        ("strategy", Side::Left, None),
        ("would have\ntaken", Side::Right, None),
        ("\nsaves", Side::Right, None),
        ("of the\nrun", Side::Right, None),
        ("of its\nCPU", Side::Right, None),
        ("regions\nmade", Side::Right, None),
        ("registered\nat most", Side::Right, None),
    ];
    let mut lines = vec![Line::Cells(vec![
        "as recorded".to_owned(),
        time(spent.ns),
        "-".to_owned(),
        "-".to_owned(),
        "-".to_owned(),
        count(spent.made),
        size(spent.most_bytes),
    ])];
    lines.extend(advice.proposals.iter().map(line));
    out.push_str(&render(&columns, &lines));
    out.push('\n');
    say(&mut out, "Each is instead of the others, but for huge pages, which go with any:", "");
    for (number, proposal) in advised.take(MOST).enumerate() {
        let Some(weighed) = proposal.weighed() else { continue };
        let (strategy, saves) = (proposal.strategy, time(weighed.saving_ns));
        let head = format!("{}. {strategy}, saves {saves}. {}", number + 1, proposal.change);
        say(&mut out, &head, "   ");
        say(&mut out, &format!("   Cost: {}.", parts(&weighed.predicted.parts)), "   ");
        say(&mut out, &format!("   Risk: {}.", proposal.risk), "   ");
    }
    left(&mut out, advice);
    for assumption in &advice.assumptions {
        say(&mut out, &format!("Assumed: {assumption}."), "   ");
    }
    out
}

fn left(out: &mut String, advice: &Advice) {
    for sentence in advice.left.sentences() {
        say(out, &format!("Not in these figures: {sentence}."), "   ");
    }
}

fn line(proposal: &Proposal) -> Line {
    let name = proposal.strategy.to_string();
    let weighed = match &proposal.outcome {
        Outcome::Measured(weighed) => weighed,
        Outcome::NotMeasured(missing) => return Line::not_measured(vec![name], missing),
    };
    let Weighed { predicted, saving_ns, share_of_wall, share_of_cpu } = &**weighed;
    let saves = match *saving_ns {
        ns if ns < 0.0 => format!("-{}", time(-ns)),
        ns => time(ns),
    };
    Line::Cells(vec![
        name,
        time(predicted.ns),
        saves,
        percent(*share_of_wall),
        share_of_cpu.map_or_else(|| "not known".to_owned(), percent),
        count(predicted.made),
        size(predicted.most_bytes),
    ])
}

fn parts(parts: &[Part]) -> String {
    let part = |part: &Part| {
        let (times, what, source) = (count(part.times), &part.what, part.source.words());
        format!("{times} {what}: {} ({source})", time(part.ns))
    };
    parts.iter().map(part).collect::<Vec<_>>().join("; ")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A paragraph, wrapped; its further lines begin with `indent`.
fn say(out: &mut String, text: &str, indent: &str) {
    let text = printable(text);
    for line in textwrap::wrap(&text, textwrap::Options::new(WIDTH).subsequent_indent(indent)) {
        out.push_str(&line);
        out.push('\n');
    }
}
