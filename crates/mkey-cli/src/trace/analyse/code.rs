//! The codes of findings.

use crate::codes::codes;

codes! {
    /// What was found. The names are stable.
    KeyAfterDereg "TRACE-KEY-AFTER-DEREG" "A key was used after its region was deregistered.",
    GoneInFlight "TRACE-GONE-IN-FLIGHT" "Memory was freed or unmapped while work that names it was in flight.",
    DeregInFlight "TRACE-DEREG-IN-FLIGHT" "A region was deregistered while work that names it was in flight.",
    UnmappedRegistered "TRACE-UNMAPPED-REGISTERED" "Memory was unmapped while registered.",
    FreedRegistered "TRACE-FREED-REGISTERED" "Memory was freed while registered.",
    ReceivedTwice "TRACE-RECEIVED-TWICE" "A buffer was posted for receive again while it was in flight.",
    Outside "TRACE-OUTSIDE" "A work request reached beyond the region of its key.",
    FailedWork "TRACE-FAILED-WORK" "Work completed in error.",
    FailedCalls "TRACE-FAILED-CALLS" "Calls of verbs failed.",
    DataPath "TRACE-DATA-PATH" "Registrations between work requests.",
    Repeated "TRACE-REPEATED" "The same memory, registered again and again.",
    Cost "TRACE-COST" "Registration takes a good part of the time.",
    Overlap "TRACE-OVERLAP" "Registered ranges overlap.",
    Small "TRACE-SMALL" "Small regions, one for which would do.",
    Leaked "TRACE-LEAKED" "Regions were left registered at exit.",
    Unused "TRACE-UNUSED" "Regions were never used.",
    Rights "TRACE-RIGHTS" "Rights were granted and never used.",
    WindowKept "TRACE-WINDOW-KEPT" "Windows were bound and never taken back.",
    WindowUnused "TRACE-WINDOW-UNUSED" "Windows were never bound.",
    PageFaults "TRACE-PAGE-FAULTS" "On-demand memory faulted.",
    Lost "TRACE-LOST" "Records found no room: counts are too low.",
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_one_for_each_and_what_json_has() {
        let names: BTreeSet<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!(code.name().starts_with("TRACE-"));
            assert_eq!(serde_json::to_string(code).unwrap(), format!("\"{code}\""));
        }
    }
}
