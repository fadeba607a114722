"""Writes MuJoCo's positions of the capsules of the three robots, which mujoco.rs compares with our limbs.

    python tests/golden/make_limbs.py        # needs tests/mujoco-parity/requirements.txt; writes limbs.json to its folder
"""

import json
from pathlib import Path

import gymnasium
import mujoco
import numpy as np

models = Path(gymnasium.__file__).parent / "envs/mujoco/assets"
files = {"hopper": "hopper.xml", "walker2d": "walker2d_v5.xml", "half-cheetah": "half_cheetah.xml"}
rng = np.random.default_rng(7)
poses = {}
for name, file in files.items():
    model = mujoco.MjModel.from_xml_path(str(models / file))
    data = mujoco.MjData(model)
    data.qpos[:] = model.qpos0 + rng.uniform(-1, 1, model.nq)
    mujoco.mj_forward(model, data)
    limbs = []
    for geom in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_CAPSULE):
        radius, half, _ = model.geom_size[geom]
        along = half * data.geom_xmat[geom].reshape(3, 3)[:, 2]
        ends = [data.geom_xpos[geom] - along, data.geom_xpos[geom] + along]
        limbs.append([end[[0, 2]].tolist() for end in ends] + [radius])
    poses[name] = {"qpos": data.qpos.tolist(), "limbs": limbs}
(Path(__file__).parent / "limbs.json").write_text(json.dumps(poses, indent=1) + "\n")
