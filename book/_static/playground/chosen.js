// Each method's settings, chosen on validation images by .ci/playground/choose.js; the mean Accuracy there, in percent.
(function (pg) {
  "use strict";

  pg.CHOSEN = {
    "naive-til": {"lr": 0.01, "epochs": 10, "validation": 99.14},
    "cumulative-til": {"lr": 0.1, "epochs": 10, "validation": 99.43},
    "er-til": {"lr": 0.005, "epochs": 10, "validation": 98.86},
    "ewc-til": {"lr": 0.01, "strength": 100, "epochs": 10, "validation": 99.43},
    "cm-til": {"lr": 0.005, "lam": 1, "support": 20, "epochs": 10, "validation": 99.29},
    "naive-cil": {"lr": 0.01, "epochs": 10, "validation": 18},
    "cumulative-cil": {"lr": 0.02, "epochs": 10, "validation": 89.71},
    "er-cil": {"lr": 0.02, "epochs": 10, "validation": 68.14},
    "ewc-cil": {"lr": 0.01, "strength": 100, "epochs": 10, "validation": 22.57},
    "cm-cil": {"lr": 0.05, "lam": 0.1, "support": 20, "epochs": 10, "validation": 0},
    "cm-without-cil": {"lr": 0.05, "lam": 0.1, "support": 20, "epochs": 10, "validation": 0},
    "projectors": true,
  };
})(globalThis.Playground = globalThis.Playground || {});
