// What is in a photo: the probability of each class, the most probable first.
export const classified = (logits, classes, name) => {
  const most = Math.max(...logits), powers = Array.from(logits, (value) => Math.exp(value - most));
  const sum = powers.reduce((total, value) => total + value, 0);
  const order = powers.map((_, at) => at).sort((a, b) => powers[b] - powers[a] || a - b);
  const scores = order.map((at) => ({ label: classes[at], score: powers[at] / sum }));
  return { photo: name, label: scores[0].label, scores };
};
