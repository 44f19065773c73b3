(function (pg) { "use strict"; })(globalThis.Playground = globalThis.Playground || {});
