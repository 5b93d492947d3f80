/** An error that a person can act on: what is wrong, and what to do next. */
export class PageError extends Error {
  constructor(
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}
