//! Several recordings as one job: of several hosts, or of processes that were recorded apart.

use mkey_trace::format::{Job, Recording};

/// One of all; the first one's command stands for the job. Each begins as much later as its host's clock
/// says, in seconds.
pub fn merge(recordings: Vec<Recording>) -> Recording {
    let first = recordings.iter().map(|recording| recording.job.began).min().unwrap_or(0);
    let mut all = Recording::default();
    for (at, recording) in recordings.into_iter().enumerate() {
        let later = recording.job.began.saturating_sub(first).saturating_mul(1_000_000_000);
        match at {
            0 => {
                let wall = recording.job.wall.saturating_add(later);
                all.job = Job { began: first, wall, ..recording.job.clone() };
            }
            _ => add_job(&mut all.job, &recording.job, later),
        }
        add(&mut all, recording, later);
    }
    all.calls.sort_by_key(|call| call.begin);
    all
}

fn add_job(all: &mut Job, job: &Job, later: u64) {
    let add = |all: &mut String, one: &str| {
        if !all.split(", ").any(|known| known == one) {
            all.push_str(", ");
            all.push_str(one);
        }
    };
    add(&mut all.host, &job.host);
    add(&mut all.cpu, &job.cpu);
    add(&mut all.kernel, &job.kernel);
    add(&mut all.end, &job.end);
    all.processors = all.processors.max(job.processors);
    all.wall = all.wall.max(job.wall.saturating_add(later));
}

/// Adds one whose times are `later` and whose ids go on after those that are there.
fn add(all: &mut Recording, one: Recording, later: u64) {
    let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    let (processes, devices) = (count(all.processes.len()), count(all.devices.len()));
    let (threads, stacks) = (count(all.threads.len()), count(all.stacks.len()));
    let (regions, queues) = (count(all.regions.len()), count(all.queues.len()));
    let windows = count(all.windows.len());
    // 0 is none.
    let shift = |id: &mut u32, by: u32| {
        if *id != 0 {
            *id = id.saturating_add(by);
        }
    };
    let delay = |time: &mut u64| *time = time.saturating_add(later);
    for mut process in one.processes {
        shift(&mut process.id, processes);
        delay(&mut process.began);
        process.ended.iter_mut().for_each(delay);
        all.processes.push(process);
    }
    for mut device in one.devices {
        shift(&mut device.id, devices);
        shift(&mut device.process, processes);
        all.devices.push(device);
    }
    for mut thread in one.threads {
        shift(&mut thread.id, threads);
        shift(&mut thread.process, processes);
        all.threads.push(thread);
    }
    for mut stack in one.stacks {
        shift(&mut stack.id, stacks);
        all.stacks.push(stack);
    }
    for mut region in one.regions {
        shift(&mut region.id, regions);
        shift(&mut region.process, processes);
        shift(&mut region.device, devices);
        shift(&mut region.reg_stack, stacks);
        shift(&mut region.dereg_stack, stacks);
        delay(&mut region.from);
        region.to.iter_mut().for_each(delay);
        all.regions.push(region);
    }
    for mut queue in one.queues {
        shift(&mut queue.id, queues);
        shift(&mut queue.process, processes);
        shift(&mut queue.device, devices);
        all.queues.push(queue);
    }
    for mut window in one.windows {
        shift(&mut window.id, windows);
        shift(&mut window.process, processes);
        shift(&mut window.device, devices);
        shift(&mut window.alloc_stack, stacks);
        delay(&mut window.from);
        window.to.iter_mut().for_each(delay);
        all.windows.push(window);
    }
    for mut remote in one.remotes {
        shift(&mut remote.process, processes);
        shift(&mut remote.device, devices);
        remote.region.iter_mut().for_each(|id| shift(id, regions));
        all.remotes.push(remote);
    }
    for mut call in one.calls {
        shift(&mut call.process, processes);
        shift(&mut call.device, devices);
        shift(&mut call.thread, threads);
        shift(&mut call.stack, stacks);
        call.region.iter_mut().for_each(|id| shift(id, regions));
        delay(&mut call.begin);
        delay(&mut call.end);
        all.calls.push(call);
    }
    for mut sample in one.samples {
        shift(&mut sample.process, processes);
        delay(&mut sample.at);
        all.samples.push(sample);
    }
    for mut failure in one.failures {
        shift(&mut failure.process, processes);
        shift(&mut failure.queue, queues);
        delay(&mut failure.at);
        all.failures.push(failure);
    }
    for mut finding in one.findings {
        shift(&mut finding.process, processes);
        finding.region.iter_mut().for_each(|id| shift(id, regions));
        finding.queue.iter_mut().for_each(|id| shift(id, queues));
        shift(&mut finding.stack, stacks);
        shift(&mut finding.before, stacks);
        delay(&mut finding.at);
        all.findings.push(finding);
    }
    all.counters.extend(one.counters);
}
