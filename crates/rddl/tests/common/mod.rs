//! Small domains to build tests from.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;

use prudence_rddl::{Error, Program, Simulator, Source};

/// Two tanks: rain falls into the tanks, and water flows from the first to the second as the action says.
pub const DOMAIN: &str = "\
domain tanks {
    types {
        tank : object;
        season : { @dry, @wet };
    };
    pvariables {
        BELOW(tank, tank) : { non-fluent, bool, default = false };
        CAPACITY(tank)    : { non-fluent, real, default = 10.0 };
        RAIN(season)      : { non-fluent, real, default = 0.5 };
        level(tank)       : { state-fluent, real, default = 4.0 };
        now               : { state-fluent, season, default = @wet };
        spilled(tank)     : { interm-fluent, real };
        release(tank)     : { action-fluent, real, default = 0.0 };
    };
    cpfs {
        spilled(?t) = max[0.0, level(?t) - CAPACITY(?t)];
        level'(?t) = level(?t) - release(?t) - spilled(?t) + RAIN(now)
            + (sum_{?u : tank} [BELOW(?u, ?t) * (release(?u) + spilled(?u))]);
        now' = switch (now) { case @dry : @wet, case @wet : @dry };
    };
    reward = -sum_{?t : tank} [abs[level(?t) - 5]];
    action-preconditions {
        forall_{?t : tank} [release(?t) >= 0 ^ release(?t) <= CAPACITY(?t) / 2];
    };
    state-invariants { forall_{?t : tank} [level(?t) >= 0]; };
    termination { exists_{?t : tank} [level(?t) > 12]; };
}
";

pub const INSTANCE: &str = "\
non-fluents two { domain = tanks; objects { tank : {t1, t2}; };
    non-fluents { BELOW(t1, t2); CAPACITY(t2) = 6.0; RAIN(@dry) = 0.0; }; }
instance first { domain = tanks; non-fluents = two; init-state { level(t1) = 11.5; };
    max-nondef-actions = pos-inf; horizon = 30; discount = 0.9; }
";

/// The tanks, with parts of the text replaced.
pub fn tanks(replaced: &[(&str, &str)]) -> Result<Program, Error> {
    let replace = |text: &str| replaced.iter().fold(text.to_owned(), |text, (from, to)| text.replacen(from, to, 1));
    for (from, _) in replaced {
        assert!(DOMAIN.contains(from) || INSTANCE.contains(from), "nothing to replace: {from}");
    }
    Program::load(&[Source::new("tanks.rddl", replace(DOMAIN)), Source::new("first.rddl", replace(INSTANCE))])
}

/// A domain with a scalar state `x` (real, initially 0) and other declarations, and an instance.
pub fn small(types: &str, variables: &str, cpfs: &str, reward: &str, instance: &str) -> Result<Program, Error> {
    let domain = format!(
        "domain d {{ types {{ {types} }}; pvariables {{ x : {{ state-fluent, real, default = 0.0 }};
            a : {{ action-fluent, real, default = 0.0 }}; {variables} }};\ncpfs {{ {cpfs} }};\nreward = {reward};\n}}"
    );
    let instance = format!("{instance} instance i {{ domain = d; horizon = 10; discount = 1.0; }}");
    Program::load(&[Source::new("d.rddl", domain), Source::new("i.rddl", instance)])
}

pub fn simulator(program: Result<Program, Error>) -> Simulator {
    match program {
        Ok(program) => Simulator::new(Arc::new(program)),
        Err(error) => panic!("{error}"),
    }
}
