//! Orders the cpfs, one for every fluent that needs one, so that each comes after those that it reads.

use crate::ast::Cpf;
use crate::check::{Checker, Reader, Reads};
use crate::model::{Kind, Model, wrong_arity};
use crate::source::{Fault, suggest};
use crate::tree::Tree;

/// The checked expression of a fluent.
pub(crate) struct CheckedCpf {
    pub fluent: usize,
    pub tree: Tree,
    reads: Reads,
}

/// Checks all cpfs and orders them.
pub(crate) fn check_cpfs(model: &Model, cpfs: &[Cpf]) -> Result<Vec<CheckedCpf>, Fault> {
    let mut by_fluent: Vec<Option<CheckedCpf>> = model.fluents.iter().map(|_| None).collect();
    for cpf in cpfs {
        let fluent = check_head(model, cpf)?;
        let declared = &model.fluents[fluent];
        let scope = cpf.parameters.iter().map(|p| p.text.clone()).zip(declared.parameters.iter().copied()).collect();
        let (tree, reads) = Checker::new(model, Reader::Cpf(declared.kind), scope).run(&cpf.expr, declared.range)?;
        if by_fluent[fluent].replace(CheckedCpf { fluent, tree, reads }).is_some() {
            return Err(Fault::at(cpf.name.span, format!("`{}` has a second cpf; expected only one", cpf.name.text)));
        }
    }
    for (fluent, cpf) in model.fluents.iter().zip(&by_fluent) {
        if cpf.is_none() && !matches!(fluent.kind, Kind::NonFluent | Kind::Action) {
            let prime = if fluent.kind == Kind::State { "'" } else { "" };
            return Err(Fault::at(fluent.span, format!("`{}` has no cpf; expected `{0}{prime} = ...;`", fluent.name)));
        }
    }
    order(model, by_fluent)
}

/// Checks the part of a cpf left of `=` and returns its fluent.
fn check_head(model: &Model, cpf: &Cpf) -> Result<usize, Fault> {
    let name = &cpf.name;
    let Some(number) = model.fluent_number(&name.text) else {
        let known = model.fluents.iter().map(|f| f.name.as_str());
        let message = format!("no pvariable is called `{}`{}", name.text, suggest(&name.text, known));
        return Err(Fault::at(name.span, message));
    };
    let fluent = &model.fluents[number];
    match (fluent.kind, cpf.primed) {
        (Kind::NonFluent | Kind::Action, _) => {
            let message = format!("`{}` ({}) cannot have a cpf", name.text, fluent.kind.name());
            return Err(Fault::at(name.span, message));
        }
        (Kind::State, false) => {
            let message = format!("`{}` is a state-fluent; expected `{0}'`", name.text);
            return Err(Fault::at(name.span, message));
        }
        (Kind::State, true) | (_, false) => {}
        (kind, true) => {
            let message = format!("`{}` ({}) has no next value; expected `{0}` without `'`", name.text, kind.name());
            return Err(Fault::at(name.span, message));
        }
    }
    if fluent.parameters.len() != cpf.parameters.len() {
        return Err(Fault::at(name.span, wrong_arity(&name.text, fluent.parameters.len(), cpf.parameters.len())));
    }
    for (i, parameter) in cpf.parameters.iter().enumerate() {
        if cpf.parameters[..i].iter().any(|earlier| earlier.text == parameter.text) {
            return Err(Fault::at(parameter.span, format!("the parameter `?{}` appears twice", parameter.text)));
        }
    }
    Ok(number)
}

fn order(model: &Model, mut cpfs: Vec<Option<CheckedCpf>>) -> Result<Vec<CheckedCpf>, Fault> {
    let computed = |fluent: usize, primed: bool| match model.fluents[fluent].kind {
        Kind::NonFluent | Kind::Action => false,
        Kind::State => primed,
        Kind::Interm | Kind::Derived | Kind::Observ => true,
    };
    let mut waits_for: Vec<usize> = vec![0; cpfs.len()];
    let mut awaited_by: Vec<Vec<usize>> = vec![Vec::new(); cpfs.len()];
    for cpf in cpfs.iter().flatten() {
        for (read, ..) in cpf.reads.iter().filter(|(read, primed, _)| computed(*read, *primed)) {
            waits_for[cpf.fluent] += 1;
            awaited_by[*read].push(cpf.fluent);
        }
    }
    let mut ready: std::collections::VecDeque<usize> =
        (0..cpfs.len()).filter(|fluent| waits_for[*fluent] == 0).collect();
    let mut ordered = Vec::new();
    while let Some(fluent) = ready.pop_front() {
        for waiting in &awaited_by[fluent] {
            waits_for[*waiting] -= 1;
            if waits_for[*waiting] == 0 {
                ready.push_back(*waiting);
            }
        }
        ordered.extend(cpfs[fluent].take());
    }
    match cpfs.iter().flatten().next() {
        None => Ok(ordered),
        Some(stuck) => Err(cycle(model, &cpfs, stuck, computed)),
    }
}

/// An error that shows a cycle, which exists because every remaining cpf reads another remaining one.
fn cycle(
    model: &Model,
    left: &[Option<CheckedCpf>],
    start: &CheckedCpf,
    computed: impl Fn(usize, bool) -> bool,
) -> Fault {
    let mut path = vec![(start.fluent, start.tree.span)];
    let mut at = start;
    loop {
        let next = at.reads.iter().find(|(read, primed, _)| computed(*read, *primed) && left[*read].is_some());
        let Some((read, _, span)) = next else { break };
        if let Some(first) = path.iter().position(|(fluent, _)| fluent == read) {
            path.drain(..first);
            path.push((*read, *span));
            break;
        }
        path.push((*read, *span));
        let Some(cpf) = &left[*read] else { break };
        at = cpf;
    }
    let names = path.iter().map(|(fluent, _)| {
        let fluent = &model.fluents[*fluent];
        format!("{}{}", fluent.name, if fluent.kind == Kind::State { "'" } else { "" })
    });
    let names = names.collect::<Vec<_>>().join(" <- ");
    Fault::at(path.last().map_or(start.tree.span, |(_, span)| *span), format!("a cycle between cpfs: {names}"))
}
