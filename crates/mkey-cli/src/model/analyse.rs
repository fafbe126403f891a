//! From a sweep to its model.

use super::fit::{LEAST, Line, Point, fit, leave_one_out};
use super::report::*;
use crate::bench::measure::median;
use crate::bench::registration::report::{Dma, Figures, Row, Sweep, Term};
use crate::bench::report::Outcome;

/// Sizes from here on are those that programs register once and that take long.
const LARGE: u64 = 1 << 20;

/// Fits each kind of page and predicts the sizes asked for.
pub fn model(sweep: Sweep, from: String, predict: &[u64]) -> Model {
    let mut kinds: Vec<(String, u64)> = Vec::new();
    for row in &sweep.rows {
        if !kinds.iter().any(|(page, _)| *page == row.page) {
            kinds.push((row.page.clone(), row.page_bytes));
        }
    }
    let (mut fits, mut predictions) = (Vec::new(), Vec::new());
    for (page, page_bytes) in kinds {
        let rows: Vec<&Row> = sweep.rows.iter().filter(|row| row.page == page).collect();
        let lines = Lines::of(&rows);
        predictions.extend(predict.iter().map(|bytes| {
            let pages = bytes.div_ceil(page_bytes.max(1));
            let outcome = match &lines {
                Ok(lines) => PredictionOutcome::Predicted(lines.predict(*bytes, pages)),
                Err(why) => PredictionOutcome::NotPredicted(why.clone()),
            };
            Prediction { page: page.clone(), bytes: *bytes, pages, outcome }
        }));
        let outcome = match &lines {
            Ok(lines) => FitOutcome::Fitted(Box::new(lines.fitted(&sweep))),
            Err(why) => FitOutcome::NotFitted(why.clone()),
        };
        fits.push(PageFit { page, page_bytes, outcome });
    }
    Model {
        schema: MODEL_SCHEMA,
        mkey: env!("CARGO_PKG_VERSION").to_owned(),
        from,
        fits,
        predictions,
        sweep,
    }
}

/// The measured rows of a kind of page and their lines.
struct Lines<'a> {
    measured: Vec<(&'a Row, &'a Figures)>,
    register: Line,
    deregister: Option<Line>,
    /// Sizes that were too disturbed to be fitted.
    left_out: Vec<u64>,
}

/// The terms of a registration.
struct SplitBy {
    /// What they were measured by, in words.
    by: String,
    split: Vec<Split>,
    /// What they add up to, if that is not the verb as it is without probes.
    probed: Option<FixedAndPage>,
}

impl<'a> Lines<'a> {
    fn of(rows: &[&'a Row]) -> Result<Self, String> {
        let mut measured: Vec<_> =
            rows.iter().filter_map(|row| Some((*row, row.figures()?))).collect();
        // A busy machine makes long registrations longer and leaves short ones as they are, which
        // no line follows. What is left out is told, and so is a fit that can do without none.
        let quiet = measured.iter().filter(|(_, figures)| !figures.disturbed).count();
        let mut left_out = Vec::new();
        if quiet >= LEAST {
            left_out =
                measured.extract_if(.., |(_, f)| f.disturbed).map(|(r, _)| r.bytes).collect();
        }
        if measured.is_empty() {
            // Why no size was measured is why there is no fit.
            let why = rows.iter().find_map(|row| match &row.outcome {
                Outcome::NotMeasured(missing) => Some(missing.what.clone()),
                Outcome::Measured(_) => None,
            });
            return Err(why.unwrap_or_else(|| "no size was measured".to_owned()));
        }
        let register = fit(&points(&measured, |f| f.register.median_ns));
        let deregister = fit(&points(&measured, |f| f.deregister.median_ns));
        Ok(Self {
            register: register.map_err(|error| error.to_string())?,
            deregister: deregister.ok(),
            measured,
            left_out,
        })
    }

    fn largest(&self) -> u64 {
        self.measured.iter().map(|(row, _)| row.bytes).max().unwrap_or(0)
    }

    fn simulated(&self) -> bool {
        self.measured.iter().any(|(row, _)| row.simulated)
    }

    fn predict(&self, bytes: u64, pages: u64) -> Predicted {
        Predicted {
            register: self.register.predict(pages as f64),
            deregister: self.deregister.as_ref().map(|line| line.predict(pages as f64)),
            beyond: bytes as f64 / self.largest().max(1) as f64,
            simulated: self.simulated(),
        }
    }

    fn fitted(&self, sweep: &Sweep) -> Fitted {
        let SplitBy { by, split, probed } = self.split(sweep);
        let of = |line: &Line, ns: fn(&Figures) -> f64| {
            coefficients(line, &points(&self.measured, ns), &self.measured)
        };
        Fitted {
            sizes: self.measured.len() as u64,
            largest_bytes: self.largest(),
            disturbed_bytes: self.left_out.clone(),
            simulated: self.simulated(),
            register: of(&self.register, |f| f.register.median_ns),
            deregister: self.deregister.as_ref().map(|l| of(l, |f| f.deregister.median_ns)),
            split_by: by,
            split,
            probed,
            iommu: self.iommu(),
        }
    }

    /// Each term's part, by the device's own terms where it tells them, else by the kernel's stages.
    fn split(&self, sweep: &Sweep) -> SplitBy {
        if let Some(split) = self.device_split() {
            return SplitBy { by: "the device's own terms".to_owned(), split, probed: None };
        }
        if let Some((whole, split)) = self.kernel_split(sweep) {
            let by = "the kernel's stages, probed".to_owned();
            return SplitBy { by, split, probed: Some(whole) };
        }
        let why = match sweep.probes.as_ref().and_then(|probes| probes.missing.as_ref()) {
            Some(missing) => missing.what.clone(),
            None => "the device does not tell; --stages asks the kernel".to_owned(),
        };
        let split = Term::ALL.into_iter().filter(|term| *term != Term::Rest).map(|term| Split {
            term,
            fixed: Part::NotMeasured(why.clone()),
            page: Part::NotMeasured(why.clone()),
        });
        SplitBy { by: "nothing".to_owned(), split: split.collect(), probed: None }
    }

    /// The verb while it was probed, and its terms.
    fn kernel_split(&self, sweep: &Sweep) -> Option<(FixedAndPage, Vec<Split>)> {
        let probed: Vec<_> =
            self.measured.iter().copied().filter(|(_, f)| f.stages.is_some()).collect();
        let whole = |f: &Figures| f.stages.as_ref().map_or(0.0, |stages| stages.verb_ns);
        let line = fit(&points(&probed, whole)).ok()?;
        let absent = |term: Term| {
            let absent = &sweep.probes.as_ref()?.absent;
            absent.iter().find(|(known, _)| *known == term).map(|(_, why)| why.clone())
        };
        let split = Term::ALL.into_iter().map(|term| {
            let part = of_term(&line, &probed, true, term);
            let (fixed, page) = match part {
                Some(line) => (Part::Measured(line.fixed), Part::Measured(line.page)),
                None => {
                    let why = absent(term)
                        .unwrap_or_else(|| "no function of it could be probed".to_owned());
                    (Part::NotMeasured(why.clone()), Part::NotMeasured(why))
                }
            };
            Split { term, fixed, page }
        });
        Some((FixedAndPage { fixed: line.fixed, page: line.page }, split.collect()))
    }

    /// What mapping by VFIO takes beyond pinning. Weighted as the mapping is: the difference itself
    /// may be anything.
    fn iommu(&self) -> Option<FixedAndPage> {
        let mapped: Vec<_> =
            self.measured.iter().copied().filter(|(_, f)| f.dma.is_some()).collect();
        let of = |ns: fn(&Dma) -> f64| move |f: &Figures| f.dma.as_ref().map_or(0.0, ns);
        let line = fit(&points(&mapped, of(|dma| dma.map.median_ns))).ok()?;
        let added: Vec<f64> = mapped.iter().map(|(_, f)| of(Dma::added_ns)(f)).collect();
        let line = line.of_term(&added)?;
        Some(FixedAndPage { fixed: line.fixed, page: line.page })
    }

    fn device_split(&self) -> Option<Vec<Split>> {
        if self.measured.iter().any(|(_, figures)| figures.terms.is_none()) {
            return None;
        }
        let of = |term| of_term(&self.register, &self.measured, false, term);
        let not = |why: &str| Part::NotMeasured(why.to_owned());
        let (pin, table, command) = (of(Term::Pin), of(Term::Table), of(Term::Command));
        let rest = of(Term::Rest)?;
        let measured = |estimate: Option<super::fit::Estimate>, why: &str| {
            estimate.map_or_else(|| not(why), Part::Measured)
        };
        let no_pin = "nothing is pinned";
        let no_map = "this device maps nothing for DMA; --iommu shows what an IOMMU would add";
        Some(vec![
            // The pin is a system call: what one of no page would take.
            Split {
                term: Term::Syscall,
                fixed: measured(pin.as_ref().map(|line| line.fixed), no_pin),
                page: Part::Elsewhere,
            },
            Split {
                term: Term::Pin,
                fixed: Part::Elsewhere,
                page: measured(pin.as_ref().map(|line| line.page), no_pin),
            },
            Split { term: Term::Map, fixed: Part::Elsewhere, page: not(no_map) },
            Split {
                term: Term::Table,
                fixed: measured(table.as_ref().map(|line| line.fixed), "not told"),
                page: measured(table.as_ref().map(|line| line.page), "not told"),
            },
            Split {
                term: Term::Command,
                fixed: measured(
                    command.as_ref().map(|line| line.fixed),
                    "software has none; --command-cost declares one",
                ),
                page: Part::Elsewhere,
            },
            Split {
                term: Term::Rest,
                fixed: Part::Measured(rest.fixed),
                page: Part::Measured(rest.page),
            },
        ])
    }
}

fn points(measured: &[(&Row, &Figures)], ns: impl Fn(&Figures) -> f64) -> Vec<Point> {
    let point =
        |(row, figures): &(&Row, &Figures)| Point { pages: row.pages() as f64, ns: ns(figures) };
    measured.iter().map(point).collect()
}

/// The line of a term; `None` if no row has it.
fn of_term(whole: &Line, measured: &[(&Row, &Figures)], kernel: bool, term: Term) -> Option<Line> {
    let times: Vec<Option<f64>> = measured
        .iter()
        .map(|(_, figures)| {
            let (_, split) = figures.split(kernel)?;
            split.into_iter().find(|(known, _)| *known == term).map(|(_, ns)| ns)
        })
        .collect();
    if times.iter().all(Option::is_none) {
        return None;
    }
    whole.of_term(&times.into_iter().map(|time| time.unwrap_or(0.0)).collect::<Vec<_>>())
}

fn coefficients(line: &Line, points: &[Point], measured: &[(&Row, &Figures)]) -> Coefficients {
    let left_out = leave_one_out(points);
    let errors = |least: u64| {
        let page_bytes = measured.first().map_or(1, |(row, _)| row.page_bytes) as f64;
        let mut errors: Vec<f64> = left_out
            .iter()
            .filter(|left| left.pages * page_bytes >= least as f64)
            .map(|left| left.error.abs())
            .collect();
        let worst = errors.iter().copied().fold(0.0, f64::max);
        median(&mut errors).map(|median| LeftOutErrors { median, worst })
    };
    Coefficients {
        fixed: line.fixed,
        page: line.page,
        r_squared: line.r_squared,
        relative_sd: line.relative_sd,
        left_out: errors(0),
        left_out_large: errors(LARGE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::registration::sample;
    use crate::bench::report::Summary;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * b.abs().max(1.0)
    }

    fn value(part: &Part) -> f64 {
        match part {
            Part::Measured(estimate) => estimate.value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_samples_coefficients_come_back() {
        let model = model(sample::sweep(), "a test".to_owned(), &[64 << 30]);
        assert_eq!(model.fits.len(), 3);
        let base = model.fits[0].fitted().unwrap();
        assert!(near(base.register.fixed.value, 500.0) && near(base.register.page.value, 70.0));
        let huge = model.fits[1].fitted().unwrap();
        assert!(near(huge.register.fixed.value, 600.0) && near(huge.register.page.value, 900.0));
        assert!(huge.register.left_out_large.unwrap().worst < 1e-6);
        let FitOutcome::NotFitted(why) = &model.fits[2].outcome else { panic!() };
        assert!(why.contains("1 GiB pages"), "{why}");
    }

    #[test]
    fn sizes_are_predicted_beyond_those_measured() {
        let model = model(sample::sweep(), "a test".to_owned(), &[64 << 30, 1 << 20]);
        assert_eq!(model.predictions.len(), 6);
        let PredictionOutcome::Predicted(far) = &model.predictions[0].outcome else { panic!() };
        assert_eq!(model.predictions[0].pages, 1 << 24);
        assert!(near(far.register.value, 500.0 + 70.0 * (1u64 << 24) as f64));
        assert_eq!(far.beyond, 1024.0);
        let PredictionOutcome::NotPredicted(_) = &model.predictions[4].outcome else { panic!() };
    }

    #[test]
    fn software_is_split_by_its_own_terms() {
        let model = model(sample::sweep(), "a test".to_owned(), &[]);
        let base = model.fits[0].fitted().unwrap();
        assert_eq!(base.split_by, "the device's own terms");
        let of = |term| base.split.iter().find(|split| split.term == term).unwrap();
        assert!(near(value(&of(Term::Syscall).fixed), 300.0));
        assert!(near(value(&of(Term::Pin).page), 70.0));
        assert!(near(value(&of(Term::Table).fixed), 50.0));
        assert!(near(value(&of(Term::Rest).fixed), 150.0));
        assert!(matches!(of(Term::Map).page, Part::NotMeasured(_)));
        assert!(matches!(of(Term::Command).fixed, Part::NotMeasured(_)));
    }

    #[test]
    fn a_kernels_device_is_split_by_its_stages() {
        let mut sweep = sample::sweep();
        for row in &mut sweep.rows {
            if let Outcome::Measured(figures) = &mut row.outcome {
                figures.terms = None;
                if let Some(stages) = figures.stages.as_mut().filter(|_| row.bytes == 4096) {
                    stages.samples = 3;
                }
            }
        }
        let model = model(sweep, "a test".to_owned(), &[]);
        let base = model.fits[0].fitted().unwrap();
        assert_eq!(base.split_by, "the kernel's stages, probed");
        let of = |term| base.split.iter().find(|split| split.term == term).unwrap();
        assert!(near(value(&of(Term::Syscall).fixed), 700.0));
        assert!(near(value(&of(Term::Pin).page), 60.0));
        assert!(near(value(&of(Term::Table).page), 30.0));
        let Part::NotMeasured(why) = &of(Term::Command).fixed else { panic!() };
        assert_eq!(why, "soft-RoCE has no firmware");
        let Part::NotMeasured(why) = &of(Term::Map).page else { panic!() };
        assert_eq!(why, "no function of it could be probed");
        // The parts add up to the verb as it was probed, which is not the verb above them.
        let whole = base.probed.unwrap();
        let sum = |part: fn(&Split) -> &Part| -> f64 {
            base.split.iter().map(part).filter(|p| matches!(p, Part::Measured(_))).map(value).sum()
        };
        assert!(near(whole.fixed.value, 850.0) && near(whole.page.value, 90.0), "{whole:?}");
        assert!(near(sum(|split| &split.fixed), 850.0) && near(sum(|split| &split.page), 90.0));
        assert!(near(base.register.page.value, 70.0));
        let text = crate::model::text::model(&model);
        let line = text.lines().find(|line| line.contains("= register, probed")).unwrap();
        assert!(line.contains("850ns") && line.contains("90.0ns"), "{text}");
        assert!(text.contains("- Few samples: of 4 KiB on 4 KiB pages"), "{text}");
    }

    #[test]
    fn terms_of_the_device_add_up_to_the_verb() {
        let model = model(sample::sweep(), "a test".to_owned(), &[]);
        let text = crate::model::text::model(&model);
        assert!(!text.contains("= register, probed"), "{text}");
        assert_eq!(model.fits[0].fitted().unwrap().probed, None);
    }

    #[test]
    fn what_an_iommu_adds_is_told_beside_the_coefficients() {
        let mut sweep = sample::sweep();
        for row in &mut sweep.rows {
            let pages = row.pages() as f64;
            if let Outcome::Measured(figures) = &mut row.outcome {
                let of = |median_ns| Summary { median_ns, ..figures.register };
                let (map, pin) = (of(7000.0 + 300.0 * pages), of(2000.0 + 100.0 * pages));
                figures.dma = Some(Dma { map, unmap: of(1.0), pin });
            }
        }
        let model = model(sweep, "a test".to_owned(), &[]);
        let base = model.fits[0].fitted().unwrap();
        let added = base.iommu.unwrap();
        assert!(near(added.fixed.value, 5000.0) && near(added.page.value, 200.0), "{added:?}");
        assert!(near(base.register.page.value, 70.0));
        let text = crate::model::text::model(&model);
        assert!(text.contains("+ IOMMU map, by VFIO") && text.contains("5.00us"), "{text}");
    }

    #[test]
    fn sizes_that_were_disturbed_are_left_out_and_named() {
        let mut sweep = sample::sweep();
        for row in sweep.rows.iter_mut().filter(|row| row.bytes == 64 << 20) {
            if let Outcome::Measured(figures) = &mut row.outcome {
                figures.disturbed = true;
                figures.register.median_ns *= 5.0;
            }
        }
        let fitted = model(sweep, "a test".to_owned(), &[]);
        let base = fitted.fits[0].fitted().unwrap();
        assert_eq!((base.sizes, &base.disturbed_bytes[..]), (14, &[64 << 20][..]));
        assert!(near(base.register.page.value, 70.0), "{base:?}");
        let notes = crate::model::text::fit_notes(&fitted);
        assert!(notes[0].contains("64 MiB on 4 KiB pages"), "{notes:?}");
    }

    #[test]
    fn figures_that_can_not_be_are_no_panic() {
        for ns in [0.0, -1.0, 1e308, f64::NAN] {
            let mut sweep = sample::sweep();
            for row in &mut sweep.rows {
                row.page_bytes = 0;
                if let Outcome::Measured(figures) = &mut row.outcome {
                    figures.register.median_ns = ns;
                }
            }
            let model = model(sweep, "a test".to_owned(), &[1 << 50]);
            assert!(model.fits.iter().all(|fit| fit.fitted().is_none()), "{ns}");
        }
    }
}
