//! The command `prudence rddl`: checks and simulates RDDL domains.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use prudence::files::{read_limited, write_atomic};
use prudence_rddl::{Draws, Ground, Keyed, Kind, Noiseless, Program, Random, Range, Simulator, Source};
use serde_json::{Map, Value, json};

use super::{print_json, refuse_existing};
use crate::args::{RddlCommand, SimulateArgs};

pub fn rddl(command: RddlCommand) -> anyhow::Result<()> {
    match command {
        RddlCommand::Check { files, json } => check(&load(&files)?, json),
        RddlCommand::Simulate(args) => simulate(args),
    }
}

fn load(files: &[PathBuf]) -> anyhow::Result<Program> {
    let sources = files.iter().map(|path| {
        Ok(Source::decode(path.display().to_string(), &read_limited(path, 1 << 26).map_err(prudence::Error::from)?))
    });
    Ok(Program::load(&sources.collect::<anyhow::Result<Vec<_>>>()?)?)
}

fn check(program: &Program, as_json: bool) -> anyhow::Result<()> {
    let of_kind = |kind| program.fluents().iter().filter(move |fluent| fluent.kind == kind);
    let count = |kind: &Kind| of_kind(*kind).map(|fluent| fluent.count).sum::<usize>();
    let counts: Map<String, Value> =
        Kind::ALL.iter().map(|kind| (kind.name().to_owned(), json!(count(kind)))).collect();
    if as_json {
        let objects: Map<String, Value> = program.types().iter().map(|t| (t.name.clone(), json!(t.objects))).collect();
        let bounds = |kind| -> Map<String, Value> {
            let ground = program.ground(kind).into_iter();
            ground.map(|g| (g.name, json!([finite(g.bounds.0), finite(g.bounds.1)]))).collect()
        };
        return print_json(&json!({
            "domain": program.domain(),
            "instance": program.instance(),
            "objects": objects,
            "ground": counts,
            "action_bounds": bounds(Kind::Action),
            "state_bounds": bounds(Kind::State),
            "horizon": program.horizon(),
            "discount": program.discount(),
            "max_nondef_actions": program.max_nondef_actions(),
            "random": program.is_random(),
            "instructions": program.instructions(),
        }));
    }
    println!("domain {}, instance {}", program.domain(), program.instance());
    let objects = program.types().iter().map(|t| format!("{} {}", t.objects.len(), t.name));
    println!("objects: {}", objects.collect::<Vec<_>>().join(", "));
    let ground = counts.iter().map(|(kind, count)| format!("{count} {kind}"));
    println!("ground: {}", ground.collect::<Vec<_>>().join(", "));
    let horizon = program.horizon().map_or("none".to_owned(), |steps| format!("{steps} steps"));
    println!("horizon: {horizon}; discount: {}", program.discount());
    println!("program: {} instructions", program.instructions());
    Ok(())
}

/// JSON has no infinity, so an infinite bound is `null`.
fn finite(x: f64) -> Option<f64> {
    Some(x).filter(|x| x.is_finite())
}

fn simulate(args: SimulateArgs) -> anyhow::Result<()> {
    if let Some(out) = &args.out {
        refuse_existing("--out", out, args.force)?;
    }
    let program = Arc::new(load(&args.files)?);
    let actions = args.actions.as_deref().map(|path| read_actions(path, &program)).transpose()?;
    let given = actions.as_ref().map_or(program.horizon().unwrap_or(100), |actions| actions.len() as u64);
    let mut run = Run { program, steps: args.steps.unwrap_or(given), actions: actions.unwrap_or_default(), args };
    match run.args.out.take() {
        None => run.write(&mut crate::Stdout::new()),
        Some(out) => {
            let mut lines = Vec::new();
            run.write(&mut lines)?;
            Ok(write_atomic(&out, &lines).map_err(prudence::Error::from)?)
        }
    }
}

/// A simulation to write.
struct Run {
    program: Arc<Program>,
    actions: Vec<Vec<f64>>,
    steps: u64,
    args: SimulateArgs,
}

impl Run {
    fn write(&self, out: &mut impl Write) -> anyhow::Result<()> {
        if let Some(path) = &self.args.uniforms {
            self.steps(&mut read_uniforms(path)?, out)
        } else if self.args.no_noise {
            self.program.check_noiseless()?;
            self.steps(&mut Noiseless, out)
        } else {
            self.steps(&mut Random::seeded(self.args.seed), out)
        }
    }

    fn steps(&self, draws: &mut impl Draws, out: &mut impl Write) -> anyhow::Result<()> {
        let program = &*self.program;
        let columns = |key: &str, kinds: &[Kind]| Columns::new(key, kinds, program);
        let (action, state) = (columns("action", &[Kind::Action])?, columns("state", &[Kind::State])?);
        let interm = columns("interm", &[Kind::Interm, Kind::Derived])?;
        let observation = columns("observation", &[Kind::Observ])?;
        let defaults: Vec<f64> = program.ground(Kind::Action).iter().map(|a| a.initial).collect();
        let mut simulator = Simulator::new(Arc::clone(&self.program));
        write!(out, "{{\"t\":0")?;
        state.write(simulator.values(), out)?;
        writeln!(out, "}}")?;
        for t in 0..self.steps {
            let taken = self.actions.get(t as usize).unwrap_or(&defaults);
            let step = simulator.step(taken, draws)?;
            write!(out, "{{\"t\":{}", t + 1)?;
            for columns in [&action, &state, &interm, &observation] {
                columns.write(simulator.values(), out)?;
            }
            out.write_all(b",\"reward\":")?;
            write_real(step.reward, out)?;
            writeln!(out, ",\"terminated\":{}}}", step.terminated)?;
            if step.terminated {
                break;
            }
        }
        Ok(out.flush()?)
    }
}

/// A JSON object within a line: the values of some kinds of pvariables. The keys are escaped only once, for speed.
struct Columns<'a> {
    key: String,
    columns: Vec<(String, Ground)>,
    program: &'a Program,
}

impl<'a> Columns<'a> {
    fn new(key: &str, kinds: &[Kind], program: &'a Program) -> anyhow::Result<Columns<'a>> {
        let ground = kinds.iter().flat_map(|kind| program.ground(*kind));
        let columns = ground.map(|g| Ok((format!("{}:", serde_json::to_string(&g.name)?), g)));
        Ok(Columns { key: format!(",\"{key}\":"), columns: columns.collect::<anyhow::Result<_>>()?, program })
    }

    fn write(&self, values: &[f64], out: &mut impl Write) -> anyhow::Result<()> {
        out.write_all(self.key.as_bytes())?;
        let mut before: &[u8] = b"{";
        for (key, ground) in &self.columns {
            out.write_all(before)?;
            out.write_all(key.as_bytes())?;
            let value = values[ground.slot];
            match ground.range {
                Range::Bool => out.write_all(if value != 0.0 { b"true" } else { b"false" })?,
                Range::Int => serde_json::to_writer(&mut *out, &(value as i64))?,
                Range::Real => write_real(value, out)?,
                Range::Object(of) => {
                    serde_json::to_writer(&mut *out, &self.program.objects(of).get(value as usize))?;
                }
            }
            before = b",";
        }
        out.write_all(if self.columns.is_empty() { b"{}" } else { b"}" })?;
        Ok(())
    }
}

/// JSON has no NaN and no infinities, so they are written as strings.
fn write_real(value: f64, out: &mut impl Write) -> anyhow::Result<()> {
    if value.is_finite() { Ok(serde_json::to_writer(out, &value)?) } else { Ok(write!(out, "\"{value}\"")?) }
}

/// Reads the actions of all steps, in the order in which the simulator takes them.
fn read_actions(path: &Path, program: &Program) -> anyhow::Result<Vec<Vec<f64>>> {
    let ground = program.ground(Kind::Action);
    let defaults: Vec<f64> = ground.iter().map(|action| action.initial).collect();
    let places: HashMap<&str, usize> = ground.iter().enumerate().map(|(i, action)| (action.name.as_str(), i)).collect();
    let text = String::from_utf8(read_limited(path, 1 << 28).map_err(prudence::Error::from)?)
        .map_err(|_| anyhow!("{}: not UTF-8 text; expected one JSON object per line", path.display()))?;
    let mut rows = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = || format!("{}, line {}", path.display(), i + 1);
        let given: Map<String, Value> = serde_json::from_str(line).with_context(place)?;
        let mut row = defaults.clone();
        for (name, value) in given {
            let Some(at) = places.get(name.as_str()) else {
                bail!("{}: no action is called `{name}`; list them with `prudence rddl check --json`", place());
            };
            row[*at] =
                action_value(&value, ground[*at].range, program).with_context(|| format!("{}: `{name}`", place()))?;
        }
        rows.push(row);
    }
    Ok(rows)
}

fn action_value(value: &Value, range: Range, program: &Program) -> anyhow::Result<f64> {
    match (range, value) {
        (Range::Bool, Value::Bool(value)) => Ok(f64::from(u8::from(*value))),
        (Range::Real, Value::Number(number)) => number.as_f64().ok_or_else(|| anyhow!("expected a number")),
        (Range::Int, Value::Number(number)) => {
            number.as_f64().filter(|x| x.fract() == 0.0).ok_or_else(|| anyhow!("expected a whole number"))
        }
        (Range::Object(of), Value::String(name)) => {
            let objects = program.objects(of);
            let place = objects.iter().position(|object| object == name.trim_start_matches('@'));
            place.map(|place| place as f64).ok_or_else(|| anyhow!("expected one of {}", objects.join(", ")))
        }
        (Range::Bool, _) => bail!("expected true or false"),
        (Range::Object(_), _) => bail!("expected the name of an object"),
        (Range::Int | Range::Real, _) => bail!("expected a number"),
    }
}

fn read_uniforms(path: &Path) -> anyhow::Result<Keyed> {
    let text = String::from_utf8(read_limited(path, 1 << 28).map_err(prudence::Error::from)?)
        .with_context(|| path.display().to_string())?;
    let numbers = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::parse::<f64>);
    let numbers = numbers.collect::<Result<Vec<_>, _>>().with_context(|| path.display().to_string())?;
    Keyed::new(numbers).ok_or_else(|| anyhow!("{}: expected numbers between 0 and 1, one per line", path.display()))
}
