//! The report: a self-contained HTML page without scripts or links, with inline pictures.
//!
//! All text from outside is escaped; only the SVG of the figures, which this crate generates, is inserted unchanged.

mod tables;
mod words;

pub use words::{POOLED, headline};

use std::fmt::Write as _;

use crate::figure::Figure;
use crate::records::Evaluation;

use words::escape;

const STYLE: &str = include_str!("html/style.css");

/// The content of a report.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// The numbers of the run.
    pub evaluation: &'a Evaluation,
    /// The figures, in order of appearance.
    pub figures: &'a [Figure],
    /// The text of the resolved `config.toml`.
    pub config: &'a str,
    /// Commands that reproduce the run.
    pub commands: &'a [String],
    /// The version of prudence that produced the run.
    pub version: &'a str,
    /// What a reader should know before trusting the numbers, such as warnings and deviations.
    pub notes: &'a [String],
    /// When, where and how the run was made; the only part of a page that may differ between equal runs.
    pub foot: &'a str,
}

impl Report<'_> {
    /// Renders the report as an HTML page.
    pub fn to_html(&self) -> String {
        let task = escape(&self.evaluation.task);
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>prudence: {task}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <header>\n<p class=\"kicker\">prudence report</p>\n<h1>{task}</h1>\n"
        );
        for (i, sentence) in words::summary(self.evaluation).iter().enumerate() {
            let class = if i == 0 { "headline" } else { "summary" };
            let _ = writeln!(page, "<p class=\"{class}\">{}</p>", escape(sentence));
        }
        page.push_str("</header>\n");
        section(&mut page, "Notes", &self.notes());
        section(&mut page, "Results", &tables::results(self.evaluation));
        section(&mut page, "Figures", &self.figures());
        section(&mut page, "Replica by replica", &tables::replicas(self.evaluation));
        section(&mut page, "Seed by seed", &tables::seeds(self.evaluation));
        section(&mut page, "Rounds", &tables::rounds(self.evaluation));
        section(&mut page, "The safety model", &tables::safety_model(self.evaluation));
        section(&mut page, "Settings", &self.settings());
        section(&mut page, "How to reproduce it", &self.repeat());
        let _ = writeln!(page, "<footer>{}</footer>", escape(self.foot));
        page.push_str("</main>\n</body>\n</html>\n");
        page
    }

    fn notes(&self) -> String {
        if self.notes.is_empty() {
            return String::new();
        }
        let items: String = self.notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
        format!("<ul class=\"notes\">\n{items}</ul>\n")
    }

    fn figures(&self) -> String {
        let figure = |figure: &Figure| {
            let (title, caption) = (escape(figure.title), escape(&figure.caption));
            let svg = &figure.svg;
            format!(
                "<figure>\n<h3>{title}</h3>\n<div class=\"wide\">\n{svg}</div>\n<figcaption>{caption}</figcaption>\n</figure>\n"
            )
        };
        self.figures.iter().map(figure).collect()
    }

    fn settings(&self) -> String {
        if self.config.trim().is_empty() {
            return String::new();
        }
        let config = escape(self.config.trim_end());
        format!(
            "<details>\n<summary>The resolved <code>config.toml</code></summary>\n<pre><code>{config}\n</code></pre>\n</details>\n"
        )
    }

    fn repeat(&self) -> String {
        let version = escape(self.version);
        let commands: String = self.commands.iter().map(|command| escape(command) + "\n").collect();
        let commands = if commands.is_empty() { commands } else { format!("<pre><code>{commands}</code></pre>\n") };
        format!(
            "{commands}<p>Produced by prudence {version}. The same version, settings and seeds give the same numbers, \
             regardless of the number of threads.</p>\n"
        )
    }
}

/// Appends a section with its heading, unless it has no content.
fn section(page: &mut String, heading: &str, content: &str) {
    if !content.is_empty() {
        let _ = write!(page, "<section>\n<h2>{heading}</h2>\n{content}</section>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure;
    use crate::records::{AlgoResult, ModelQuality, Reference, Round, SeedResult};
    use prudence_safety::Quality;

    fn evaluation(task: &str, returns: &[&[f64]]) -> Evaluation {
        let seed =
            |(k, r): (usize, &&[f64])| SeedResult { seed: k as u64, returns: r.to_vec(), safe: vec![true; r.len()] };
        let seeds: Vec<SeedResult> = returns.iter().enumerate().map(seed).collect();
        let results: Vec<AlgoResult> =
            ["sac", "safesac-h"].iter().map(|algo| AlgoResult::from_seeds(algo, 20_000, &seeds)).collect();
        let held_out = Quality::of(&[(-0.1, true), (-1.6, true), (-2.3, false)]);
        Evaluation {
            task: task.to_owned(),
            target: 0.9,
            safety_model: ModelQuality { held_out, own: Some(held_out), data_episodes: 2000, data_segments: 30_000 },
            rounds: results.iter().map(|result| Round::new(0, result, 0.98, 0.95)).collect(),
            results,
            references: vec![Reference { name: "standing <still>".into(), return_mean: -100.0, safe_share: 1.0 }],
        }
    }

    fn page(evaluation: &Evaluation) -> String {
        let figures = [figure::seeds(&evaluation.results, evaluation.target)];
        let notes = ["lambda reached its cap & stayed".to_owned()];
        let commands = ["prudence run navigation --set \"env.noise=<0.1>\"".to_owned()];
        let report = Report {
            evaluation,
            figures: &figures,
            config: "[agent]\nhidden = 64 # <b>",
            commands: &commands,
            version: "0.1.0",
            notes: &notes,
            foot: "made <today>",
        };
        report.to_html()
    }

    #[test]
    fn a_malicious_task_name_is_escaped() {
        let html = page(&evaluation("<script>alert('x')</script>", &[&[1.0]]));
        assert!(!html.contains("<script") && html.contains("&lt;script&gt;"));
    }

    #[test]
    fn all_given_text_appears_escaped() {
        let html = page(&evaluation("navigation", &[&[1.0, 2.0], &[3.0, 4.0]]));
        for text in [
            "standing &lt;still&gt;",
            "cap &amp; stayed",
            "hidden = 64 # &lt;b&gt;",
            "env.noise=&lt;0.1&gt;",
            "prudence 0.1.0",
            "SafeSAC-H",
            "4/4",
            "39.8\u{2013}100",
            "Every seed against the target",
            "<footer>made &lt;today&gt;</footer>",
        ] {
            assert!(html.contains(text), "{text}");
        }
    }

    #[test]
    fn the_page_is_self_contained() {
        let html = page(&evaluation("navigation", &[&[1.0]]));
        let outside = html.replace("http://www.w3.org/2000/svg", "");
        for link in ["http:", "https:", "<link", "<script", "@import", "url(", " src="] {
            assert!(!outside.contains(link), "{link}");
        }
        assert_eq!(html, page(&evaluation("navigation", &[&[1.0]])));
    }

    #[test]
    fn unusual_input_is_rendered_without_nan() {
        let mut bare = evaluation("t", &[]);
        bare.results.clear();
        bare.rounds.clear();
        bare.references.clear();
        bare.safety_model.own = None;
        for evaluation in [evaluation("t", &[]), evaluation("t", &[&[f64::NAN]]), evaluation("t", &[&[]]), bare] {
            let html = page(&evaluation);
            assert!(!html.contains("NaN") && html.ends_with("</html>\n"));
        }
    }

    #[test]
    fn sections_without_content_are_omitted() {
        let evaluation = evaluation("t", &[&[1.0]]);
        let report = Report {
            evaluation: &evaluation,
            figures: &[],
            config: "",
            commands: &[],
            version: "0.1.0",
            notes: &[],
            foot: "",
        };
        let html = report.to_html();
        for heading in ["<h2>Notes", "<h2>Figures", "<h2>Settings"] {
            assert!(!html.contains(heading), "{heading}");
        }
    }
}
