// Five things for a learner to try: a setting to begin with, a prediction, and a check of a finished run.
(function (pg) {
  "use strict";

  const share = (v) => `${v.toFixed(0)} %`;
  const lost = (R) => R[0][0] - R[R.length - 1][0]; // of task 1, in points
  const last = (R, j) => R[R.length - 1][j];

  // check(run, R, sums, beside) -> { truth: which guess was right, done, text }
  const EXERCISES = [
    {
      title: "Make it forget",
      text: "Naive training, five tasks, and at the end the network must choose among all ten digits. Guess first, then run.",
      setup: "#method=naive&scenario=cil",
      question: "Of the test images of task 1, at the end it still gets right",
      guesses: ["nearly all", "about half", "almost none"],
      done: "task 1 loses 50 points or more",
      check: ({ setting }, R) => ({
        fits: setting.method === "naive" && setting.scenario === "cil", done: lost(R) >= 50,
        truth: last(R, 0) >= 80 ? 0 : last(R, 0) >= 20 ? 1 : 2,
        text: `Right after task 1 it got ${share(R[0][0])} right, at the end ${share(last(R, 0))}.`,
      }),
    },
    {
      title: "Told which task",
      text: "Now the network is told which task an image belongs to, in training and in the test, so it only chooses between two digits. But it trains in large steps. Run it once. " +
        "Then lower the learning rate until task 1 loses less than 5 points.",
      setup: "#method=naive&scenario=til&lr=0.1",
      question: "With a learning rate of a tenth of that, task 1 will be forgotten",
      guesses: ["less", "just as much", "more"],
      done: "a Naive run in TIL, its learning rate at most 0.02, in which task 1 loses less than 5 points",
      check: ({ setting }, R) => ({
        fits: setting.method === "naive" && setting.scenario === "til", done: setting.lr <= 0.02 && lost(R) < 5,
        truth: setting.lr <= 0.02 ? (lost(R) < 10 ? 0 : 1) : null,
        text: `With a learning rate of ${setting.lr} task 1 went from ${share(R[0][0])} to ${share(last(R, 0))}.`,
      }),
    },
    {
      title: "How few images are enough?",
      text: "ER replays images of old tasks. Find a memory of at most 50 images with which the last row of the matrix is 60 % or more on average.",
      setup: "#method=er&scenario=cil&memory=10",
      question: "With one image of each digit, Accuracy at the end is",
      guesses: ["as bad as Naive's, about 20 %", "between 30 and 60 %", "above 60 %"],
      done: "ER in CIL with a memory of at most 50 and an Accuracy of 60 % or more",
      check: ({ setting }, R, sums) => ({
        fits: setting.method === "er" && setting.scenario === "cil", done: setting.memory <= 50 && sums.accuracy >= 60,
        truth: setting.memory === 10 ? (sums.accuracy < 30 ? 0 : sums.accuracy < 60 ? 1 : 2) : null,
        text: `With a memory of ${setting.memory} it ended at ${share(sums.accuracy)}.`,
      }),
    },
    {
      title: "Without a single stored image",
      text: "Large steps again, and two networks side by side: CM, which keeps two centroids a task and holds old places with its penalty, and Naive, " +
        "which keeps nothing. Guess, run, and compare the planes of task 1.",
      setup: "#method=cm&scenario=til&lr=0.1&lam=0.1&compare=naive",
      question: "At the end, more of task 1 is left",
      guesses: ["on the side of CM", "on the side of Naive", "it is the same on both"],
      done: "CM beside Naive, in TIL with a learning rate of 0.1, and CM loses less than 10 points of task 1",
      check: ({ setting }, R, sums, beside) => beside.length === R.length && ({
        fits: setting.method === "cm" && setting.scenario === "til",
        done: setting.lr === 0.1 && lost(R) < 10,
        truth: Math.abs(lost(R) - lost(beside)) < 3 ? 2 : lost(R) < lost(beside) ? 0 : 1,
        text: `With a learning rate of ${setting.lr} task 1 went from ${share(R[0][0])} to ${share(last(R, 0))} by CM, and from ${share(beside[0][0])} to ${share(last(beside, 0))} by Naive.`,
      }),
    },
    {
      title: "Neither too loose nor too tight",
      text: "A penalty can be too strong: its slope has the length lambda however small the drift is, so with large steps it shakes the network (chapter 4). " +
        "Run it, then find a lambda with which task 1 keeps 90 % of what it had right after it was learned, and task 5 is learned (90 % or more).",
      setup: "#method=cm&scenario=til&lr=0.1&lam=1",
      question: "With a smaller lambda, task 1 will be kept",
      guesses: ["better", "just as well", "worse"],
      done: "CM in TIL with a learning rate of 0.1: task 1 keeps 90 % of its accuracy, and task 5 has 90 % or more",
      check: ({ setting }, R) => ({
        fits: setting.method === "cm" && setting.scenario === "til" && !setting.compare,
        done: setting.lr === 0.1 && setting.lam < 1 && last(R, 0) >= 0.9 * R[0][0] && last(R, 4) >= 90,
        truth: setting.lam < 1 ? (last(R, 0) >= 0.9 * R[0][0] ? 0 : 2) : null,
        text: `With lambda ${setting.lam} task 1 kept ${share(last(R, 0))} of ${share(R[0][0])}, and task 5 has ${share(last(R, 4))}.`,
      }),
    },
  ];

  // What to say after a run to someone who guessed (or did not): { text, done }. beside: the matrix of the run beside it.
  function verdict(exercise, guess, run, beside) {
    const result = exercise.check(run, run.R, pg.summary(run.R), beside);
    if (!result.fits) return null;
    if (guess === null) return { done: false, text: `${result.text} Choose your prediction, then run again.` };
    const told = result.truth === null ? "" : result.truth === guess ? " Your prediction was right." : ` You expected otherwise; it is: ${exercise.guesses[result.truth]}.`;
    return { done: result.done, text: `${result.done ? "Done. " : "Not yet. "}${result.text}${told}${result.done ? "" : ` Wanted: ${exercise.done}.`}` };
  }

  Object.assign(pg, { EXERCISES, verdict });
})(globalThis.Playground = globalThis.Playground || {});
