//! Runs a program step by step.

use std::sync::Arc;

use crate::code::Failure;
use crate::draws::{Draws, Noiseless};
use crate::program::{Conditions, Program};
use crate::source::{Error, Fault};

/// The result of one step, besides the new state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedStep {
    /// The reward of the step.
    pub reward: f64,
    /// Whether a termination condition holds in the new state.
    pub terminated: bool,
}

/// A simulation of a program. Stepping does not allocate.
#[derive(Clone, Debug)]
pub struct Simulator {
    program: Arc<Program>,
    values: Vec<f64>,
    registers: Vec<usize>,
    steps: u64,
}

impl Simulator {
    /// Creates a simulator in the initial state.
    pub fn new(program: Arc<Program>) -> Simulator {
        let values = program.values.clone();
        let registers = vec![0; program.code.registers];
        Simulator { program, values, registers, steps: 0 }
    }

    /// The program that is simulated.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Returns to the initial state.
    pub fn reset(&mut self) {
        let ground = self.program.ground;
        self.values[..ground].copy_from_slice(&self.program.values[..ground]);
        self.steps = 0;
    }

    /// The values of all pvariables, indexed by [`crate::Ground::slot`]. State-fluents have their values after the last
    /// step; intermediate, derived and observed fluents those of the last step, or 0 before the first.
    pub fn values(&self) -> &[f64] {
        &self.values[..self.program.ground]
    }

    /// The state: the values of [`Program::ground`] with [`crate::Kind::State`], in that order.
    pub fn state(&self) -> &[f64] {
        &self.values[..self.program.states]
    }

    /// Replaces the state by one in the order of [`Simulator::state`].
    pub fn set_state(&mut self, state: &[f64]) -> Result<(), Error> {
        let expected = self.program.states;
        if state.len() != expected {
            return Err(wrong_length("the state", state.len(), expected));
        }
        self.values[..expected].copy_from_slice(state);
        Ok(())
    }

    /// The number of steps since the last reset. The keys of draws depend on it.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Sets the number of steps, to return to an earlier point.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// Takes a step. `actions` are the values of [`Program::ground`] with [`crate::Kind::Action`], in that order. The
    /// preconditions are not checked.
    ///
    /// A distribution whose parameters are out of range is an error and leaves the state as it was.
    pub fn step<D: Draws>(&mut self, actions: &[f64], draws: &mut D) -> Result<SimulatedStep, Error> {
        self.set_actions(actions)?;
        let program = &*self.program;
        let states = program.states;
        let failure = program.code.run(program.step, &mut self.values, &mut self.registers, draws, self.steps);
        if let Some(failure) = failure {
            return Err(self.explain(failure));
        }
        self.values.copy_within(states..2 * states, 0);
        self.steps += 1;
        Ok(SimulatedStep { reward: self.values[self.program.reward], terminated: self.terminated()? })
    }

    /// Whether a termination condition holds in the current state.
    pub fn terminated(&mut self) -> Result<bool, Error> {
        Ok(self.first(|program| &program.terminations, true)?.is_some())
    }

    /// Whether all action-preconditions hold for actions in the current state.
    pub fn preconditions_hold(&mut self, actions: &[f64]) -> Result<bool, Error> {
        self.set_actions(actions)?;
        Ok(self.first(|program| &program.preconditions, false)?.is_none())
    }

    /// Whether all state-invariants hold in the current state.
    pub fn invariants_hold(&mut self) -> Result<bool, Error> {
        Ok(self.first(|program| &program.invariants, false)?.is_none())
    }

    fn set_actions(&mut self, actions: &[f64]) -> Result<(), Error> {
        let (start, expected) = (2 * self.program.states, self.program.actions);
        if actions.len() != expected {
            return Err(wrong_length("the action", actions.len(), expected));
        }
        self.values[start..start + expected].copy_from_slice(actions);
        Ok(())
    }

    /// The index of the first condition that has the given value.
    fn first(&mut self, which: impl Fn(&Program) -> &Conditions, value: bool) -> Result<Option<usize>, Error> {
        let (program, values) = (&*self.program, &mut self.values);
        let Conditions { routine, slots } = which(program);
        let failure = program.code.run(*routine, values, &mut self.registers, &mut Noiseless, self.steps);
        match failure {
            Some(failure) => Err(self.explain(failure)),
            None => Ok(slots.iter().position(|slot| (values[*slot as usize] != 0.0) == value)),
        }
    }

    fn explain(&self, failure: Failure) -> Error {
        let Failure { span, message, value } = failure;
        let message = if value.is_nan() && message.contains("index") {
            format!("step {}: {message}", self.steps)
        } else {
            format!("step {}: {message}; it is {value}", self.steps)
        };
        Fault::at(span, message).show(&self.program.sources)
    }
}

fn wrong_length(what: &str, given: usize, expected: usize) -> Error {
    Fault::general(format!("{what} has {given} numbers, expected {expected}")).show(&[])
}
