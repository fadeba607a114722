//! The installation of engines: its checks, its files and its errors.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use prudence_physics::engines::{BULLET, Engines, MUJOCO, install_steps};

/// The pinned wheels, downloaded by pip and kept in cargo's folder for tests.
fn wheels() -> &'static Path {
    static WHEELS: OnceLock<PathBuf> = OnceLock::new();
    WHEELS.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wheels");
        let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.11"]);
        pip.args(["--abi=cp311", "--platform=manylinux_2_28_x86_64", "--platform=manylinux2014_x86_64", "--dest"]);
        pip.arg(&folder).args(["mujoco==3.3.7", "gymnasium==1.4.0", "pybullet==3.2.7", "bullet-safety-gym==1.4.0"]);
        assert!(pip.status().unwrap().success());
        folder
    })
}

fn installed(engines: &Engines) -> bool {
    engines.status().iter().all(|status| status.installed)
}

fn silent(_: u64, _: &str) {}

/// The names in a folder, including hidden ones, sorted.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn copy_of_wheels(to: &Path) -> Vec<PathBuf> {
    std::fs::create_dir(to).unwrap();
    let copy = |name: String| {
        std::fs::copy(wheels().join(&name), to.join(&name)).unwrap();
        to.join(name)
    };
    names(wheels()).into_iter().map(copy).collect() // bullet_safety_gym, gymnasium, mujoco, pybullet
}

#[test]
fn an_installation_has_the_required_files_and_a_second_one_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let engines = Engines::at(folder.path().join("deep/cache"));
    let before = engines.status();
    let mut files = before.iter().flat_map(|status| &status.files);
    assert!(files.all(|file| file.problem.as_deref() == Some("missing")) && !installed(&engines));
    let mut steps = Vec::new();
    assert!(engines.install(Some(wheels()), &mut |step, _| steps.push(step)).unwrap());
    assert_eq!(steps, (0..install_steps()).collect::<Vec<_>>());
    assert!(installed(&engines));
    let mujoco = engines.folder(&MUJOCO);
    assert_eq!(names(&mujoco), ["half_cheetah.xml", "hopper.xml", MUJOCO.library, "walker2d_v5.xml"]);
    let models = ["octagon_wall.urdf", "plane15.urdf", "plane250.urdf"];
    let files = ["ball.urdf", "meshes"].into_iter().chain(models).chain([BULLET.library, "racecar_differential.urdf"]);
    assert_eq!(names(&engines.folder(&BULLET)), files.collect::<Vec<_>>());
    assert_eq!(names(mujoco.parent().unwrap()), [".lock", "bullet-3.2.7", "mujoco-3.3.7"], "no leftovers");
    let nowhere = folder.path().join("nowhere");
    assert!(
        !engines
            .install(Some(&nowhere), &mut |_, _| panic!("an installation reported progress with nothing to do"))
            .unwrap()
    );
}

#[test]
fn a_damaged_installation_is_reported_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let engines = Engines::at(folder.path());
    engines.install(Some(wheels()), &mut silent).unwrap();
    let (library, model) = (engines.folder(&MUJOCO).join(MUJOCO.library), engines.folder(&BULLET).join("ball.urdf"));
    let mut bytes = std::fs::read(&library).unwrap();
    bytes[1_000_000] ^= 1;
    std::fs::write(&library, bytes).unwrap();
    std::fs::remove_file(&model).unwrap();
    // As a killed installation would leave it.
    std::fs::create_dir_all(folder.path().join(".staging/wheels")).unwrap();
    let files = engines.status().into_iter().flat_map(|status| status.files);
    let problems: Vec<_> = files.filter_map(|file| file.problem).collect();
    assert!(problems[0].starts_with("damaged: SHA-256 ") && problems[1] == "missing", "{problems:?}");
    assert!(engines.install(Some(wheels()), &mut silent).unwrap());
    assert!(installed(&engines));
    assert_eq!(names(folder.path()), [".lock", "bullet-3.2.7", "mujoco-3.3.7"]);
}

#[test]
fn a_wheel_that_is_not_the_pinned_one_is_rejected_and_nothing_is_installed() {
    let folder = tempfile::tempdir().unwrap();
    let engines = Engines::at(folder.path().join("cache"));
    let refused = |from: &Path| engines.install(Some(from), &mut silent).unwrap_err().to_string();
    let told = refused(&folder.path().join("nowhere"));
    assert!(told.contains("nowhere: there is no mujoco-3.3.7-"), "{told}");

    let copies = copy_of_wheels(&folder.path().join("changed"));
    let mut bytes = std::fs::read(&copies[1]).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&copies[1], bytes).unwrap();
    let told = refused(&folder.path().join("changed"));
    assert!(told.contains("gymnasium-1.4.0-") && told.contains("not the pinned file"), "{told}");

    let copies = copy_of_wheels(&folder.path().join("cut"));
    let bytes = std::fs::read(&copies[2]).unwrap();
    std::fs::write(&copies[2], &bytes[..bytes.len() / 2]).unwrap();
    let told = refused(&folder.path().join("cut"));
    assert!(told.contains("mujoco-3.3.7-") && told.contains("not the pinned file"), "{told}");

    assert!(!installed(&engines));
    assert_eq!(names(&folder.path().join("cache")), [".lock"], "no partial installation is left");
}

#[test]
fn concurrent_installations_do_not_affect_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let engines = Engines::at(folder.path());
    let wheels = wheels();
    let changed: Vec<bool> = std::thread::scope(|scope| {
        let install = || engines.install(Some(wheels), &mut silent).unwrap();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(install)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let workers = changed.iter().filter(|changed| **changed).count();
    assert!((1..=2).contains(&workers), "one installation per engine should do the work, but {workers} did");
    assert!(installed(&engines));
}
