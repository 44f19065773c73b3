// Each method's settings, chosen on validation images by .ci/playground/choose.js; the mean Accuracy there, in percent.
(function (pg) {
  "use strict";

  pg.CHOSEN = {
    "naive-til": {"lr": 0.005, "epochs": 10, "validation": 99.05},
    "cumulative-til": {"lr": 0.05, "epochs": 10, "validation": 100},
    "er-til": {"lr": 0.05, "epochs": 10, "validation": 99.52},
    "ewc-til": {"lr": 0.01, "strength": 100, "epochs": 10, "validation": 99.76},
    "cm-til": {"lr": 0.01, "lam": 0.3, "support": 20, "epochs": 10, "validation": 99.76},
    "naive-cil": {"lr": 0.02, "epochs": 10, "validation": 19.76},
    "cumulative-cil": {"lr": 0.05, "epochs": 10, "validation": 89.29},
    "er-cil": {"lr": 0.02, "epochs": 10, "validation": 65.48},
    "ewc-cil": {"lr": 0.01, "strength": 100, "epochs": 10, "validation": 24.29},
    "cm-cil": {"lr": 0.05, "lam": 0.3, "support": 20, "epochs": 10, "validation": 76.9},
    "cm-without-cil": {"lr": 0.02, "lam": 0.1, "support": 20, "epochs": 10, "validation": 78.1},
  };
})(globalThis.Playground = globalThis.Playground || {});
